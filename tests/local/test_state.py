"""Tests for the state folder: location, permissions, and errors when it cannot be used."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from argosy.local.state import State, StateError


def test_the_folder_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    state.create()
    assert state.folder.stat().st_mode & 0o777 == 0o700


def test_argosy_home_takes_precedence_over_the_users_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert State.of("a").folder == tmp_path / "xdg" / "argosy" / "a"
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "own"))
    assert State.of("a").folder == tmp_path / "own" / "a"


def test_a_path_too_long_for_a_socket_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="set ARGOSY_HOME to a shorter folder"):
        State(tmp_path / ("x" * 120)).create()


def test_a_read_only_folder_is_an_error_with_a_hint(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    with pytest.raises(StateError, match=r"cannot be written .* set ARGOSY_HOME"):
        State(blocker / "s").create()


def test_problem_is_empty_for_a_writable_folder_and_describes_a_read_only_one(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    state.create()
    assert state.problem() == ""
    assert [entry.name for entry in state.folder.iterdir() if entry.name.startswith(".")] == []
    assert (
        State(tmp_path / "gone").problem() == f"{tmp_path}/gone cannot be written (No such file or directory)"
    )


@pytest.mark.root
def test_a_full_disk_is_reported_with_its_free_space(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path], check=True)
    try:
        state = State(tmp_path / "s")
        state.create()
        (tmp_path / "large").write_bytes(b"x" * (1500 << 10))
        want = f"full: 548 kB free in {tmp_path}/s; free disk space to continue"
        assert state.problem() == want
        (tmp_path / "large").unlink()
        assert state.problem() == ""
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_the_lock_is_exclusive_and_released(tmp_path: Path) -> None:
    state = State(tmp_path / "s")
    state.create()
    with state.locked(), pytest.raises(StateError, match="another `argosy up`"), state.locked():
        pass
    with state.locked():
        pass


def test_concurrent_checks_for_a_writable_folder_do_not_interfere(tmp_path: Path) -> None:
    state = State(tmp_path / "s")

    def create() -> None:
        for _ in range(100):
            state.create()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(create) for _ in range(4)]:
            done.result()
    assert state.problem() == ""
