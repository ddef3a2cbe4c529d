"""Tests for remote exec when connections fail: the command goes on, and its output is complete.

kubectl is a stand-in that runs commands locally (`tests.support.fake_kubectl`).
"""

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.fake_kubectl import (
    FORBIDDEN,
    NOT_FOUND,
    POD,
    STUBBORN,
    UNREACHABLE,
    UNTIL_END,
    FakePod,
    Shell,
    read_line,
)
from tests.support.waiting import wait_for

COUNT = f"""
number=0
{UNTIL_END.replace("sleep", "number=$((number + 1)); echo line $number; echo error $number >&2; sleep")}
echo $number > $FAKE_POD/number
exit 5
"""
"""Prints numbered lines on both streams until it may end."""

MAX_CHUNKS = 96
"""The largest number of chunks that are kept of a stream, each of 64 KiB at most."""


def numbered(word: str, pod: FakePod) -> bytes:
    last = int((pod.folder / "number").read_text())
    return b"".join(f"{word} {number}\n".encode() for number in range(1, last + 1))


CUTS = {
    "connection cut: process goes on": "",
    "connection cut, runtime kills its process: the command goes on": "killed by the runtime",
}


@pytest.mark.long
@pytest.mark.parametrize("runtime", CUTS.values(), ids=CUTS.keys())
def test_output_is_complete_and_in_order_after_cuts(runtime: str, pod: FakePod) -> None:
    if runtime:
        pod.write(runtime, "yes")
    outputs = [pod.folder / "stdout", pod.folder / "stderr"]
    with outputs[0].open("wb") as stdout, outputs[1].open("wb") as stderr:
        agent = pod.start(POD, COUNT, stdout=stdout.fileno(), stderr=stderr.fileno())

    def printed() -> int:
        return outputs[0].read_bytes().count(b"\n")

    for cut in range(2):
        before = printed()
        wait_for(lambda before=before: printed() > before + 3)  # type: ignore[misc]
        pod.refuse()
        pod.cut()
        wait_for(lambda cut=cut: len(pod.calls()) > 2 * cut + 1)  # type: ignore[misc]
        pod.accept()
    before = printed()
    wait_for(lambda: printed() > before)
    pod.write("end", "")
    assert agent.wait(60) == 5
    assert outputs[0].read_bytes() == numbered("line", pod)
    assert outputs[1].read_bytes() == numbered("error", pod)


def test_command_that_ends_while_there_is_no_connection_reports_its_code_and_output(pod: FakePod) -> None:
    agent = pod.start(POD, f"echo started; {UNTIL_END}; echo ended; exit 7")
    assert read_line(agent) == b"started\n"
    pod.refuse()
    pod.cut()
    pod.write("end", "")
    wait_for(lambda: not pod.command_processes())
    pod.accept()
    output, _ = agent.communicate(timeout=60)
    assert (agent.returncode, output) == (7, b"ended\n")


def test_command_starts_once_if_its_first_connection_is_cut(pod: FakePod) -> None:
    """A cut right at the start, when the agent cannot know whether the command has started."""
    agent = pod.start(POD, f"echo $$ >> $FAKE_POD/starts; {UNTIL_END}; echo ended")
    wait_for((pod.folder / "starts").exists)
    pod.cut()
    wait_for(lambda: len(pod.calls()) > 1)
    pod.write("end", "")
    output, _ = agent.communicate(timeout=60)
    assert (agent.returncode, output) == (0, b"ended\n")
    assert (pod.folder / "starts").read_text().count("\n") == 1


def test_output_kept_in_the_pod_is_bounded_and_delivered_after_a_cut(pod: FakePod) -> None:
    count = 9 << 20
    agent = pod.start(POD, f"echo; {UNTIL_END}; head -c {count} /dev/zero | tr '\\0' x")
    assert read_line(agent) == b"\n"
    pod.refuse()
    pod.cut()
    pod.write("end", "")

    def kept() -> int:
        return len(list(pod.kept.glob("*/o.*.*")))

    wait_for(lambda: kept() == MAX_CHUNKS, lambda: str(kept()))  # the command waits now, as with a full pipe
    pod.accept()
    output, _ = agent.communicate(timeout=100)
    assert (agent.returncode, output == b"x" * count) == (0, True)


def test_what_is_delivered_is_deleted_in_the_pod(pod: FakePod) -> None:
    agent = pod.start(POD, f"head -c 3000000 /dev/zero; {UNTIL_END}")
    assert agent.stdout
    assert len(agent.stdout.read(3000000)) == 3000000
    wait_for(lambda: not list(pod.kept.glob("*/o.*")))
    pod.write("end", "")
    assert agent.wait(60) == 0


@pytest.mark.long
def test_cut_beyond_the_limit_ends_both_sides(tmp_path: Path, shell: Shell) -> None:
    pod = FakePod(tmp_path / "limited", shell, limit=4)
    try:
        agent = pod.start(POD, STUBBORN)
        assert read_line(agent) == b"started\n"
        pod.refuse()
        pod.cut()
        _, error = agent.communicate(timeout=60)
        assert agent.returncode == 255
        assert b"the connection to mnist-worker-1 was cut and cannot be made again" in error
        wait_for(lambda: not pod.remaining(), lambda: str(pod.remaining()))
        assert not pod.leftovers()
    finally:
        pod.clean()


def test_agent_that_returns_too_late_reports_that_the_command_is_gone(pod: FakePod) -> None:
    agent = pod.start(POD, f"echo started; {UNTIL_END}")
    assert read_line(agent) == b"started\n"
    pod.refuse()
    pod.cut()
    for pid in pod.keeper_processes():
        with suppress(ProcessLookupError):  # one that has just ended
            os.kill(pid, signal.SIGKILL)
    pod.accept()
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert b"the command on mnist-worker-1 is gone" in error


def test_pod_that_may_no_longer_be_reached_ends_the_command(pod: FakePod) -> None:
    """A worker that is removed from a job leaves the launcher's role before its pod is gone."""
    agent = pod.start(POD, f"echo started; {UNTIL_END}")
    assert read_line(agent) == b"started\n"
    pod.write("faults", json.dumps([FORBIDDEN] * 100))
    pod.cut()
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert b"is forbidden" in error


def test_right_that_is_missing_for_a_moment_ends_nothing(pod: FakePod) -> None:
    """A new API server has not read the roles yet."""
    agent = pod.start(POD, f"echo started; {UNTIL_END}; echo ended")
    assert read_line(agent) == b"started\n"
    pod.write("faults", json.dumps(["", UNREACHABLE, FORBIDDEN]))
    pod.cut()
    wait_for(lambda: len(pod.calls()) > 3)
    pod.write("end", "")
    output, _ = agent.communicate(timeout=60)
    assert (agent.returncode, output) == (0, b"ended\n")


@pytest.mark.long
def test_killed_connection_is_made_again(pod: FakePod) -> None:
    agent = pod.start(POD, f"echo started; {UNTIL_END}; echo ended")
    assert read_line(agent) == b"started\n"
    pod.cut()
    wait_for(lambda: len(pod.calls()) > 1)
    pod.write("end", "")
    assert agent.communicate(timeout=60)[0] == b"ended\n"
    assert agent.returncode == 0


@dataclass
class StartCase:
    faults: list[str]
    want_code: int
    want_calls: int | None = None
    want_error: bytes = b""


STARTS = {
    "forbidden for a moment: tries again": StartCase([FORBIDDEN], 3, 2),
    "forbidden: gives up with the code of kubectl": StartCase([FORBIDDEN] * 100, 1, None, b"is forbidden"),
    "API server unreachable for a while: tries again": StartCase([UNREACHABLE, UNREACHABLE], 3, 3),
    "no such pod: gives up with the code of kubectl": StartCase([NOT_FOUND] * 9, 1, 1, b"not found"),
    "pod that has finished: gives up": StartCase(
        ["error: cannot exec into a container in a completed pod; current phase is Failed"] * 9, 1, 1
    ),
    "image without a shell: gives up": StartCase(
        ['error: OCI runtime exec failed: exec: "/bin/sh": stat /bin/sh: no such file or directory'] * 9, 1, 1
    ),
}


@pytest.mark.parametrize("case", STARTS.values(), ids=STARTS.keys())
def test_first_connection_that_fails(case: StartCase, pod: FakePod) -> None:
    pod.write("faults", json.dumps(case.faults))
    agent = pod.start(POD, "exit 3")
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == case.want_code, error
    assert case.want_calls in (None, len(pod.calls()))
    assert case.want_error in error


def test_cut_while_standard_input_is_sent_is_a_failure(pod: FakePod) -> None:
    """What was on its way is lost, and a command must not take a part of its input for all of it."""
    agent = pod.start(POD, f"read -r line; echo $line; {UNTIL_END}; cat", stdin=subprocess.PIPE)
    assert agent.stdin
    agent.stdin.write(b"first\n")
    agent.stdin.flush()
    assert read_line(agent) == b"first\n"
    pod.cut()
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert b"was cut while standard input was sent" in error


def test_folder_that_cannot_be_written_is_replaced_by_another(pod: FakePod) -> None:
    pod.kept.rmdir()
    agent = pod.start(POD, "echo ok; ls $TMPDIR")
    output, _ = agent.communicate(timeout=60)
    pod.kept.mkdir()
    assert output.startswith(b"ok\n")
    assert re.search(rb"^argosy-remote-\d+-", output, re.MULTILINE)
    assert agent.returncode == 0


@pytest.mark.long
def test_output_is_complete_without_positions_of_descriptors(pod: FakePod) -> None:
    """As in gVisor, whose `fdinfo` has only flags."""
    pod.edit({'if [ "$line" = pos: ]': "if false"})
    agent = pod.start(POD, "seq 20000; printf end")
    output, _ = agent.communicate(timeout=60)
    assert output == b"".join(f"{number}\n".encode() for number in range(1, 20001)) + b"end"


def test_pod_without_any_folder_to_write_to_is_reported(pod: FakePod) -> None:
    pod.edit({'"${TMPDIR:-/tmp}" /tmp /var/tmp /run "${HOME:-/}"; do\n        if': "; do\n        if"})
    pod.kept.rmdir()
    agent = pod.start(POD, "true")
    _, error = agent.communicate(timeout=60)
    pod.kept.mkdir()
    assert agent.returncode == 255
    assert error == (
        b"argosy: mnist-worker-1: no folder with space to write to: tried /dev/shm, /tmp, /var/tmp, /run\n"
    )


@pytest.mark.long
@pytest.mark.root
def test_full_file_system_of_the_pod_loses_no_output(pod: FakePod) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", pod.kept], check=True)
    try:
        agent = pod.start(POD, f"echo; {UNTIL_END}; seq 100000; echo error >&2; exit 3")
        assert read_line(agent) == b"\n"
        fill(pod.kept / "filler", "1M")
        pod.write("end", "")
        wait_for(lambda: not list(pod.kept.glob("*/reserve")))
        fill(pod.kept / "filler2", "4k")
        (pod.kept / "filler").unlink()
        output, error = agent.communicate(timeout=60)
        assert agent.returncode == 3
        assert output == b"".join(f"{number}\n".encode() for number in range(1, 100001))
        assert error == b"error\n"
        (pod.kept / "filler2").unlink()
        wait_for(lambda: not list(pod.kept.iterdir()))
    finally:
        subprocess.run(["umount", "-l", pod.kept], check=True)


def fill(path: Path, block: str) -> None:
    """Write to a file until its file system is full."""
    command = ["dd", "if=/dev/zero", f"of={path}", f"bs={block}"]
    subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
