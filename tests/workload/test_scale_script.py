"""Tests the wrapper of scaling scripts with real shells: once, with a time limit, and any values."""

import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from argosy.workload.operation import Operation
from argosy.workload.scale_request import Script
from argosy.workload.scale_script import TIMED_OUT_EXIT_CODE, script_call
from tests.support.workloads import NOW, pod

SHELLS = [["/bin/sh"], *([["busybox", "sh"]] if shutil.which("busybox") else [])]
OPERATION = Operation("uid-1", "Out", "worker", NOW)


def command(folder: Path, script: Script, operation: Operation = OPERATION) -> tuple[str, ...]:
    hosts = ("j-worker-2:1", "j-worker-3:1")
    return script_call(operation, script, pod(role="launcher"), "main", str(folder), hosts).command


def run(shell: list[str], words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*shell, *words[1:]], capture_output=True, text=True, timeout=60, check=False)


def written(folder: Path, text: str) -> Script:
    path = folder / "scale.sh"
    path.write_text(text)
    return Script(str(path), timeout=30.0)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_the_script_gets_hosts_and_literal_values(shell: list[str], tmp_path: Path) -> None:
    script = written(tmp_path, 'printf "%s|%s" "$1" "$A"; exit 7\n')
    script = replace(script, env=(("A", "a b 'c' \"d\" $HOME\nnext"),))
    ended = run(shell, command(tmp_path, script))
    assert ended.stdout == "j-worker-2:1,j-worker-3:1|a b 'c' \"d\" $HOME\nnext"
    assert ended.returncode == 7


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_repeated_call_returns_the_first_result(shell: list[str], tmp_path: Path) -> None:
    script = written(tmp_path, f"echo once >> {tmp_path}/runs; exit 3\n")
    codes = [run(shell, command(tmp_path, script)).returncode for _ in range(3)]
    assert codes == [3, 3, 3]
    assert (tmp_path / "runs").read_text() == "once\n"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_call_during_the_first_one_waits_for_its_result(shell: list[str], tmp_path: Path) -> None:
    (tmp_path / "go").unlink(missing_ok=True)
    wait = f"while [ ! -f {tmp_path}/go ]; do sleep 0.1; done"
    words = command(tmp_path, written(tmp_path, f"echo x >> {tmp_path}/runs; {wait}; exit 4\n"))
    calls = [subprocess.Popen([*shell, *words[1:]]) for _ in range(2)]
    while not (tmp_path / "runs").exists():
        assert all(call.poll() is None for call in calls)
    (tmp_path / "go").touch()
    assert [call.wait(60) for call in calls] == [4, 4]
    assert (tmp_path / "runs").read_text() == "x\n"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_script_that_hangs_is_ended_with_its_children(shell: list[str], tmp_path: Path) -> None:
    script = written(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child; wait\n")
    ended = run(shell, command(tmp_path, replace(script, timeout=1.0)))
    assert ended.returncode == TIMED_OUT_EXIT_CODE
    child = (tmp_path / "child").read_text().strip()
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_every_try_has_a_key_and_a_marker_of_its_own(tmp_path: Path) -> None:
    script = written(tmp_path, f"echo x >> {tmp_path}/runs\n")
    for tries in (0, 1):
        run(["/bin/sh"], command(tmp_path, script, replace(OPERATION, failed_tries=tries)))
    assert (tmp_path / "runs").read_text() == "x\nx\n"
