"""Tests for checkpoints of real containers: dumped by one pod, and continued in another one."""

import json
import os
import shutil
import socket
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from argosy.checkpoint.drivers import criu
from argosy.local.node import checkpoint_files, pod_state, shim_socket
from argosy.local.node.logs import log_path, read_lines
from argosy.local.node.runspec import ContainerConfig, MountConfig, RunSpec
from argosy.local.node.runspec_builder import hidden_folders, interpreter_folders
from tests.support.criu import require_criu
from tests.support.runspecs import Stage, container_config, finished, run_spec
from tests.support.waiting import wait_for

pytestmark = pytest.mark.root

_COUNT = """
import hashlib, os, sys, time
state, log = b"", open("/tmp/progress", "w")
open("/run/state.txt", "w").write("here")
notes = open("/run/state.txt")
lost = open("/tmp/unlinked", "w+")
lost.write("kept")
os.unlink("/tmp/unlinked")
for step in range(40):
    state = hashlib.sha256(state + bytes([step])).digest()
    log.write(f"{step}\\n")
    log.flush()
    print("step", step, flush=True)
    time.sleep(0.05)
lost.seek(0)
written = open("/tmp/progress").read().split() == [str(n) for n in range(40)]
print("result", state.hex(), written, notes.read(), lost.read())
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def _criu() -> None:
    require_criu()


def python(name: str, script: str, **changes: object) -> ContainerConfig:
    return container_config(name, "", argv=[sys.executable, "-c", textwrap.dedent(script)], **changes)


def output(folder: Path, container: str = "main", run: int = 0) -> list[str]:
    lines = b"".join(line.format(False) for line in read_lines(log_path(folder, container, run)))
    return lines.decode().splitlines()


def checkpoint(folder: Path, target: Path, container: str = "main") -> str:
    """Ask the shim for a checkpoint; return the problem, or nothing."""
    request = {
        "op": "checkpoint",
        "container": container,
        "target": str(target),
        "criu": str(criu.find_prefix()),
        "image": "local",
    }
    with shim_socket.connect(folder) as client:
        client.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, str] = json.loads(client.makefile().readline())
    return answer.get("error", "")


def places(tmp_path: Path) -> dict[str, object]:
    """The fields of a run spec that a restored container needs on this machine."""
    return {
        "hidden": hidden_folders(tmp_path),
        "visible": interpreter_folders(),
        "criu": str(criu.find_prefix()),
    }


@pytest.fixture
def count_checkpoint(pods: Stage, tmp_path: Path) -> tuple[Path, Path]:
    """A pod that counts, and a checkpoint of it after some steps."""
    source = pods.run(run_spec(python("main", _COUNT), **places(tmp_path)))
    wait_for(lambda: "step 5" in output(source))
    tar, unpacked = tmp_path / "checkpoint.tar", tmp_path / "unpacked"
    assert checkpoint(source, tar) == ""
    assert (tar.stat().st_mode & 0o777, list(tmp_path.glob("*.tmp"))) == (0o600, [])
    checkpoint_files.unpack_checkpoint(tar, unpacked)
    return source, unpacked


def test_a_container_continues_in_another_pod_and_the_first_one_goes_on(
    count_checkpoint: tuple[Path, Path], pods: Stage, tmp_path: Path
) -> None:
    source, unpacked = count_checkpoint
    target = pods.run(run_spec(python("main", "", restore=str(unpacked)), **places(tmp_path)))
    ends = [finished(folder)["containers"]["main"]["ended"] for folder in (source, target)]
    assert [end["exit_code"] for end in ends if end] == [7, 7], output(target)
    before, after = output(source), output(target)
    assert before[-1].endswith(" True here kept")
    assert "step 0" not in after
    assert after == before[-len(after) :], "the same steps and the same result, from the checkpoint on"


def test_a_killed_container_is_restored_again_in_its_pod(
    count_checkpoint: tuple[Path, Path], pods: Stage, tmp_path: Path
) -> None:
    source, unpacked = count_checkpoint
    config = python("main", "", restore=str(unpacked))
    target = pods.run(run_spec(config, restart_policy="OnFailure", first_backoff=0.0, **places(tmp_path)))
    wait_for(lambda: output(target)[1:] != [])
    with shim_socket.connect(target) as client:
        client.sendall(b'{"op": "signal", "container": "main", "signal": 9}\n')
        client.makefile().readline()
    wait_for(lambda: any(line.startswith("result") for line in output(target, run=1)))
    again = output(target, run=1)
    assert again == output(source)[-len(again) :]


OBSTACLES: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "a terminal: refused": ({"tty": True}, {}, "terminal"),
    "shared processes: refused": ({}, {"share_pids": True}, "shareProcessNamespace"),
    "a daemon whose parent has ended: refused": (
        {"argv": ["/bin/sh", "-c", "(setsid sleep 1000 &); sleep 1000"]},
        {},
        "sleep (started by exec, or a daemon",
    ),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_what_cannot_be_restored_is_not_dumped(case: str, pods: Stage, tmp_path: Path) -> None:
    config, pod, want = OBSTACLES[case]
    folder = pods.run(run_spec(container_config("main", "sleep 1000", **config), **places(tmp_path) | pod))
    wait_for(lambda: _is_running(folder))
    assert want in checkpoint(folder, tmp_path / "checkpoint.tar")
    assert list(tmp_path.glob("checkpoint.tar*")) == []


def _is_running(folder: Path) -> bool:
    state = pod_state.read_state(folder)
    return bool(state and "main" in state["containers"] and state["containers"]["main"]["running"])


def _remove_progress(unpacked: Path) -> None:
    folder = unpacked / "changed"
    checkpoint_files.unpack_folder(unpacked / "files" / "private-0.tar", folder)
    (folder / "progress").unlink()
    checkpoint_files.pack_folder(folder, unpacked / "files" / "private-0.tar")
    shutil.rmtree(folder)


def _truncate(unpacked: Path) -> None:
    (unpacked / "argosy.json").write_text('{"version": 1}')


FAILURES: dict[str, tuple[Callable[[Path], None], dict[str, object], str]] = {
    "an open file is missing: CRIU's reason": (_remove_progress, {}, "tmp/progress"),
    "not the description of a checkpoint: what is missing": (
        _truncate,
        {},
        "argosy.json: container, created",
    ),
    "fewer capabilities than the checkpoint: refused": (
        lambda _: None,
        {"capabilities": []},
        "capabilities that the container may not have",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_restore_ends_the_container_with_the_reason(
    case: str, count_checkpoint: tuple[Path, Path], pods: Stage, tmp_path: Path
) -> None:
    damage, config, want = FAILURES[case]
    _, unpacked = count_checkpoint
    damage(unpacked)
    target = pods.run(run_spec(python("main", "", restore=str(unpacked), **config), **places(tmp_path)))
    end = finished(target)["containers"]["main"]["ended"]
    assert end is not None
    assert (end["exit_code"], end["reason"]) == (128, "StartError")
    assert want in end["message"]
    assert output(target) == []


_ECHO = """
import os, socket, sys, time
port = int(sys.argv[1])
connection = socket.create_connection(("127.0.0.1", port))
count = 0
while count < 60:
    try:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
    except (OSError, AssertionError):
        print("reconnects", flush=True)
        connection = socket.create_connection(("127.0.0.1", port))
        continue
    count += 1
    print("echo", count, flush=True)
    time.sleep(0.05)
"""


def test_connections_of_the_source_go_on_and_those_of_the_restored_container_are_closed(
    pods: Stage, tmp_path: Path
) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port, served = server.getsockname()[1], os.fork()
    if served == 0:
        _serve(server)
    server.close()
    try:
        config = python("main", _ECHO)
        config["argv"].append(str(port))
        source = pods.run(run_spec(config, **places(tmp_path)))
        wait_for(lambda: "echo 5" in output(source))
        tar, unpacked = tmp_path / "checkpoint.tar", tmp_path / "unpacked"
        assert checkpoint(source, tar) == ""
        checkpoint_files.unpack_checkpoint(tar, unpacked)
        target = pods.run(run_spec(python("main", "", restore=str(unpacked)), **places(tmp_path)))
        ends = [finished(folder)["containers"]["main"]["ended"] for folder in (source, target)]
        assert [end["exit_code"] for end in ends if end] == [0, 0], output(target)
        assert "reconnects" not in output(source)
        assert output(target).count("reconnects") == 1
        assert output(target)[-1] == "echo 60"
    finally:
        os.kill(served, 9)
        os.waitpid(served, 0)


def _serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            while data := connection.recv(1):
                connection.sendall(data)
            os._exit(0)
        connection.close()


_FORKS = """
import multiprocessing, os, time
from multiprocessing import shared_memory
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    queue, memory = context.Queue(), shared_memory.SharedMemory(create=True, size=1 << 20)

    def produce(queue, memory):
        for number in range(60):
            memory.buf[number] = number
            queue.put(number)
            time.sleep(0.05)

    child = context.Process(target=produce, args=(queue, memory))
    child.start()
    numbers = []
    for number in range(60):
        numbers.append(queue.get())
        print("step", number, flush=True)
    child.join()
    print("result", numbers == list(range(60)), list(memory.buf[:60]) == numbers)
    memory.close()
    memory.unlink()
"""

_LISTENS = """
import socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
def serve():
    while True:
        client, _ = server.accept()
        client.sendall(b"served")
        client.close()
threading.Thread(target=serve, daemon=True).start()
answers = []
for step in range(40):
    with socket.create_connection(server.getsockname()) as client:
        answers.append(client.recv(10))
    print("step", step, flush=True)
    time.sleep(0.05)
print("result", set(answers) == {b"served"})
"""

_WRITES = """
import fcntl, time
log, lock = open("/scratch/log", "w"), open("/run/lock/training", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
for step in range(40):
    print(step, file=log, flush=True)
    print("step", step, flush=True)
    time.sleep(0.05)
print("result", open("/scratch/log").read().split() == [str(number) for number in range(40)])
"""

_OVERLAY = """
import os, pathlib, time
os.makedirs("/opt/training")
os.unlink("/etc/debian_version")
notes, lost = open("/opt/training/notes", "w"), open("/opt/training/lost", "w+")
lost.write("kept")
lost.flush()
os.unlink("/opt/training/lost")
for step in range(40):
    print(step, file=notes, flush=True)
    print("step", step, flush=True)
    time.sleep(0.05)
lost.seek(0)
lines = open("/opt/training/notes").readlines()
print("result", len(lines), lost.read(), os.path.exists("/etc/debian_version"))
"""

VARIANTS: dict[str, tuple[str, dict[str, object], str]] = {
    "forked processes with a queue and shared memory": (_FORKS, {}, "result True True"),
    "a thread that listens on a socket": (_LISTENS, {}, "result True"),
    "an emptyDir volume and a locked file in /run": (_WRITES, {}, "result True"),
    "new, removed and unlinked files in the root": (_OVERLAY, {}, "result 40 kept False"),
    "no capabilities and a read-only root": (
        _COUNT,
        {"capabilities": [], "read_only_root": True},
        " True here kept",
    ),
    "standard input that is open": (_COUNT, {"stdin": True}, " True here kept"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", VARIANTS)
def test_what_a_container_uses_is_restored(case: str, pods: Stage, tmp_path: Path) -> None:
    script, config, want = VARIANTS[case]
    fields = places(tmp_path) | {"scratch_volumes": ["scratch"]}

    def pod(**more: object) -> RunSpec:
        runspec = run_spec(python("main", script, **config, **more), **fields)
        volume = pods.folder / runspec["uid"] / "volumes" / "scratch"
        volume.mkdir(parents=True)
        mount = MountConfig(source=str(volume), target="/scratch", read_only=False)
        runspec["containers"][0]["mounts"] = [mount]
        return runspec

    source = pods.run(pod())
    wait_for(lambda: "step 5" in output(source))
    tar, unpacked = tmp_path / "checkpoint.tar", tmp_path / "unpacked"
    assert checkpoint(source, tar) == ""
    assert output(source)[-1].startswith("step"), "the source had not ended"
    checkpoint_files.unpack_checkpoint(tar, unpacked)
    finished(source)  # both are in the network of the machine, where one can listen
    target = pods.run(pod(restore=str(unpacked)))
    for folder in (source, target):
        end = finished(folder)["containers"]["main"]["ended"]
        assert end is not None
        assert end["reason"] != "StartError", end["message"]
        assert output(folder)[-1].endswith(want), output(folder)
    assert "step 1" not in output(target)
