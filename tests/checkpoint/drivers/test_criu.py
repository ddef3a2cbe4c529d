"""Tests for CRIU's command lines, its errors, and what it can do on this machine."""

from pathlib import Path

import pytest

from argosy.checkpoint.drivers import criu
from tests.support.criu import require_criu

LOGS = {
    "an error of the dump: its text": (
        "(00.010) Error (criu/files-reg.c:1810): Can't lookup mount=24 for fd=10 path=/x\n",
        "Can't lookup mount=24 for fd=10 path=/x",
    ),
    "an error of a restored process: its text without the pid": (
        "(00.031)      2: Error (criu/files-reg.c:2235): Can't open file run/state.txt on restore\n"
        "(00.040) Error (criu/cr-restore.c:2320): Restoring FAILED.\n",
        "Can't open file run/state.txt on restore",
    ),
    "a log without times: the same": (
        "     2: Error (criu/files-reg.c:2353): Can't open file tmp/x: No such file or directory\n",
        "Can't open file tmp/x: No such file or directory",
    ),
    "errors that mean nothing: skipped": (
        "(00.001) Error (criu/tun.c:85): tun: Unable to create tun: No such file or directory\n"
        "(00.002) Warn  (criu/rlimit.c:12): rlimit: Can't setup RLIMIT_NOFILE for self\n"
        "(00.003) Error (criu/sk-inet.c:188): inet: Connected TCP socket, consider using --tcp-established\n",
        "inet: Connected TCP socket, consider using --tcp-established",
    ),
    "no error: said so": ("(00.001) Dumping finished successfully\n", "CRIU gives no reason"),
}


@pytest.mark.parametrize("case", LOGS)
def test_failure_reason(case: str, tmp_path: Path) -> None:
    text, want = LOGS[case]
    log = tmp_path / "dump.log"
    log.write_text(text)
    assert criu.failure_reason(tmp_path / "missing.log", log) == want


def test_the_prefix_is_found_where_it_was_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert criu.find_prefix(tmp_path) is None
    libraries = tmp_path / "argosy" / "criu" / "usr" / "lib" / "x86_64-linux-gnu"
    program = tmp_path / "argosy" / "criu" / "usr" / "sbin" / "criu"
    for path in (libraries / "ld-linux-x86-64.so.2", program):
        path.parent.mkdir(parents=True)
        path.touch()
    prefix = criu.find_prefix(tmp_path)
    assert prefix == tmp_path / "argosy" / "criu"
    assert criu.prefix_command(prefix, at="/proc/self/fd/8") == [
        "/proc/self/fd/8/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "--library-path",
        "/proc/self/fd/8/usr/lib/x86_64-linux-gnu",
        "/proc/self/fd/8/usr/sbin/criu",
    ]


def test_the_criu_of_the_system_is_found_if_none_was_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("usr/lib64/ld-linux-x86-64.so.2", "usr/sbin/criu"):
        path = tmp_path / "system" / name
        path.parent.mkdir(parents=True)
        path.touch()
    prefix = criu.find_prefix(tmp_path / "system")
    assert prefix == tmp_path / "system"
    assert criu.prefix_command(prefix, at="/proc/self/fd/8")[2:] == [
        "/proc/self/fd/8/usr/lib64",
        "/proc/self/fd/8/usr/sbin/criu",
    ]


@pytest.mark.root
def test_a_probe_dumps_and_restores_a_process() -> None:
    require_criu()
    probe = criu.probe()
    assert (probe.problem, probe.version.split(".")[0]) == ("", "4")


def test_a_probe_without_criu_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criu, "find_prefix", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "scripts/criu" in criu.probe().problem
