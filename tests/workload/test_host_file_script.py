"""Tests the script that writes host files with real shells: atomic, in order, and any content."""

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from argosy.workload.host_file_script import write_call, write_script
from argosy.workload.host_files import VERSION_FILE, HostFiles, LiveFile
from tests.support.workloads import pod

SHELLS = [["/bin/sh"], ["bash"], *([["busybox", "sh"]] if shutil.which("busybox") else [])]
EVERY_SHELL = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)


def host_files(folder: Path, content: str = "a:1\nb:1\n", version: int = 7) -> HostFiles:
    live = (
        LiveFile(str(folder / "etc" / "hostfile"), 0o600, content),
        LiveFile(str(folder / "etc" / "discover.sh"), 0o755, "#!/bin/sh\n"),
        LiveFile(str(folder / "a job" / "it's"), 0o640, content),
    )
    return HostFiles({}, live, version, str(folder / "etc" / VERSION_FILE))


def run(shell: list[str], script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, "-s"], input=script, capture_output=True, text=True, timeout=60, check=False
    )


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


WRITTEN = ["a job/it's", f"etc/{VERSION_FILE}", "etc/discover.sh", "etc/hostfile"]


@EVERY_SHELL
def test_all_files_are_written_with_their_modes_and_nothing_else_is_left(
    shell: list[str], tmp_path: Path
) -> None:
    files = host_files(tmp_path, "a:1\n'$(touch x)' \\ \"%s\"\n-n\n")
    for _ in range(2):
        ended = run(shell, write_script(files))
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        assert names(tmp_path) == WRITTEN
        for file in files.live:
            path = Path(file.path)
            assert (path.read_text(), path.stat().st_mode & 0o777) == (file.content, file.mode)


@EVERY_SHELL
def test_an_older_list_does_not_replace_a_newer_one(shell: list[str], tmp_path: Path) -> None:
    assert run(shell, write_script(host_files(tmp_path, "new", 8))).returncode == 0
    assert run(shell, write_script(host_files(tmp_path, "old", 7))).returncode == 0
    assert (tmp_path / "etc" / "hostfile").read_text() == "new"
    assert names(tmp_path) == WRITTEN
    assert run(shell, write_script(host_files(tmp_path, "newest", 1_790_000_000_000_000))).returncode == 0
    assert (tmp_path / "etc" / "hostfile").read_text() == "newest"


@EVERY_SHELL
def test_a_script_that_arrives_in_part_changes_nothing(shell: list[str], tmp_path: Path) -> None:
    script = write_script(host_files(tmp_path))
    for length in range(0, len(script) - 2, 7):
        run(shell, script[:length])
        assert names(tmp_path) == []


@EVERY_SHELL
def test_a_file_that_cannot_be_written_fails_and_leaves_nothing_behind(
    shell: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a job").write_text("not a folder")
    assert run(shell, write_script(host_files(tmp_path))).returncode == 1
    assert names(tmp_path) == ["a job"]


@EVERY_SHELL
def test_a_reader_sees_whole_files_while_calls_run_beside_each_other(
    shell: list[str], tmp_path: Path
) -> None:
    contents = {f"{number}:1\n" * 500 for number in range(4)}
    scripts = [write_script(host_files(tmp_path, content)) for content in sorted(contents)]
    assert run(shell, scripts[0]).returncode == 0
    writers = [
        threading.Thread(target=lambda script=script: [run(shell, script) for _ in range(5)])
        for script in scripts
    ]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add((tmp_path / "etc" / "hostfile").read_text())
    assert seen <= contents
    assert names(tmp_path) == WRITTEN


def test_the_call_is_for_one_pod_and_keeps_contents_out_of_the_command_line(tmp_path: Path) -> None:
    launcher = pod(role="launcher")
    call = write_call("key", host_files(tmp_path), launcher, "main")
    assert (call.pod, call.uid, call.container) == (launcher.name, launcher.uid, "main")
    assert call.command == ("/bin/sh", "-s")
    assert b"a:1\nb:1\n" in call.stdin
