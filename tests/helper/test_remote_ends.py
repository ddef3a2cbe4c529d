"""Tests for the end of remote exec: each side ends when the other one does, however that happens.

kubectl is a stand-in that runs commands locally (`tests.support.fake_kubectl`).
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.certificates import LOOPBACK, Authority
from tests.support.fake_kubectl import (
    FORBIDDEN,
    NOT_FOUND,
    POD,
    RUNNING,
    STUBBORN,
    UNREACHABLE,
    UNTIL_END,
    FakePod,
    Shell,
    read_line,
)
from tests.support.waiting import wait_for

ENDING = {"HUP": 129, "INT": 130, "TERM": 143}


@pytest.mark.parametrize("name", ENDING)
def test_signal_that_ends_is_passed_to_the_command(name: str, pod: FakePod) -> None:
    agent = pod.start(POD, "echo started; trap 'echo ended; exit 9' HUP INT TERM; sleep 600 & wait")
    assert read_line(agent) == b"started\n"
    agent.send_signal(getattr(signal, f"SIG{name}"))
    output, _ = agent.communicate(timeout=60)
    assert (agent.returncode, output) == (9, b"ended\n")


@pytest.mark.long
@pytest.mark.parametrize("name", ENDING)
def test_signal_that_ends_kills_processes_that_ignore_it(name: str, pod: FakePod) -> None:
    agent = pod.start(POD, STUBBORN)
    assert read_line(agent) == b"started\n"
    agent.send_signal(getattr(signal, f"SIG{name}"))
    agent.communicate(timeout=60)
    assert agent.returncode in (137, ENDING[name])
    wait_for(lambda: not pod.command_processes())


def test_interrupt_has_its_default_effect(pod: FakePod) -> None:
    """A shell makes processes in the background ignore it; the command is not one of them."""
    agent = pod.start(POD, "echo started; exec sleep 600")
    assert read_line(agent) == b"started\n"
    agent.send_signal(signal.SIGINT)
    assert agent.wait(60) == 130


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_user_signal_reaches_the_processes_that_handle_it(name: str, pod: FakePod) -> None:
    handler = f"trap 'echo caught' {name}; echo started; {UNTIL_END}"
    agent = pod.start(POD, f'sh -c "$(cat << "x"\n{handler}\nx\n)"; echo ended')
    assert read_line(agent) == b"started\n"
    agent.send_signal(getattr(signal, f"SIG{name}"))
    assert read_line(agent) == b"caught\n"
    pod.write("end", "")
    output, _ = agent.communicate(timeout=60)
    assert (agent.returncode, output) == (0, b"ended\n"), "the shell that waits does not handle it"


def test_signal_while_there_is_no_connection_is_passed_on_later(pod: FakePod) -> None:
    agent = pod.start(POD, "echo started; trap 'exit 9' TERM; sleep 600 & wait")
    assert read_line(agent) == b"started\n"
    pod.refuse()
    pod.cut()
    agent.terminate()
    wait_for(lambda: len(pod.calls()) > 1)
    pod.accept()
    assert agent.wait(60) == 9


@pytest.mark.long
def test_signal_without_a_connection_ends_the_agent_after_a_while(tmp_path: Path, shell: Shell) -> None:
    pod = FakePod(tmp_path / "limited", shell, limit=8)
    try:
        agent = pod.start(POD, STUBBORN)
        assert read_line(agent) == b"started\n"
        pod.refuse()
        pod.cut()
        agent.terminate()
        assert agent.wait(60) == 143
        wait_for(lambda: not pod.remaining(), lambda: str(pod.remaining()))
    finally:
        pod.clean()


@pytest.mark.parametrize("stdin", [subprocess.DEVNULL, subprocess.PIPE], ids=["no input", "open input"])
def test_case_54_killed_agent_ends_the_command(stdin: int, pod: FakePod) -> None:
    agent = pod.start(POD, STUBBORN, stdin=stdin)
    assert read_line(agent) == b"started\n"
    agent.kill()
    wait_for(lambda: not pod.remaining(), lambda: str(pod.remaining()))
    assert not pod.leftovers()


@pytest.mark.parametrize(
    "runtime",
    ["", pytest.param("killed by the runtime", marks=pytest.mark.long)],
    ids=["process goes on", "runtime kills its process"],
)
def test_all_processes_of_the_agent_killed_while_the_api_server_answers_ends_the_command(
    runtime: str, pod: FakePod
) -> None:
    """As when its pod is deleted; the limit of a cut is far away."""
    if runtime:
        pod.write(runtime, "yes")
    agent = pod.start(POD, STUBBORN)
    assert read_line(agent) == b"started\n"
    for pid in (agent.pid, *pod.children(agent.pid)):
        with suppress(ProcessLookupError):  # one that has just ended
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not pod.remaining(), lambda: str(pod.remaining()))


@pytest.mark.long
@pytest.mark.parametrize("tool", ["curl", "python3", "bash", "nc"])
def test_api_server_is_found_with_any_of_the_tools(tool: str, tmp_path: Path, shell: Shell) -> None:
    """A command whose agent is gone ends long before the limit only if the API server answers."""
    if shell.programs is None:
        pytest.skip("only busybox comes without the other tools")
    pod = FakePod(tmp_path / "tools", shell, patience=2)
    try:
        (pod.folder / "tools" / "curl").unlink()
        if tool != "nc":
            program = sys.executable if tool == "python3" else shutil.which(tool)
            pod.add_tool(tool, f'exec {program} "$@"')
        with answering_server() as port:
            address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
            pod.write("environment", json.dumps({**pod.environment, **address}))
            agent = pod.start(POD, STUBBORN)
            assert read_line(agent) == b"started\n"
            for pid in (agent.pid, *pod.children(agent.pid)):
                with suppress(ProcessLookupError):  # one that has just ended
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not pod.remaining(), lambda: str(pod.remaining()))
    finally:
        pod.clean()


@contextmanager
def answering_server() -> Iterator[int]:
    """A server of HTTPS that answers a request without TLS with an error, as those of Go do; its port."""
    certificate = Authority().issue("api", LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "certificate", Path(folder) / "key"]
        for path, content in zip(paths, (certificate.certificate, certificate.key), strict=True):
            path.write_bytes(content)
        context.load_cert_chain(paths[0], paths[1])
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer, args=(server, context), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _answer(server: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with suppress(OSError), connection:
            if connection.recv(1, socket.MSG_PEEK) != b"\x16":
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                continue
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.recv(1 << 16)
                secured.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")


def test_new_container_of_the_launcher_ends_the_commands_of_the_old_one_before_its_own(pod: FakePod) -> None:
    pod.edit({"instance=$(set": "instance=$INSTANCE; true $(set"})
    first = pod.start(POD, STUBBORN, environment={"INSTANCE": "1"})
    assert read_line(first) == b"started\n"
    beside = pod.start(POD, f"echo beside; {UNTIL_END}", environment={"INSTANCE": "2"})
    assert read_line(beside) == b"beside\n"
    # `beside` has ended the first one, whose agent learns it; the next one is of the same container.
    wait_for(lambda: first.poll() is not None)
    second = pod.start(POD, "echo second", environment={"INSTANCE": "2"})
    assert second.communicate(timeout=60)[0] == b"second\n"
    assert beside.poll() is None
    pod.write("end", "")
    assert beside.wait(60) == 0


def test_reader_of_the_output_that_goes_ends_the_command(pod: FakePod) -> None:
    agent = pod.start(POD, "while :; do echo y; done")
    assert read_line(agent) == b"y\n"
    assert agent.stdout
    agent.stdout.close()
    assert agent.wait(60) == 143


REAPER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
agent = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
while True:
    try:
        child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        break
    session = int(open(f"/proc/{child.si_pid}/stat").read().rpartition(")")[2].split()[3])
    os.waitpid(child.si_pid, 0)
    if child.si_pid != agent and session == os.getsid(0):  # the pod's processes have other sessions
        print("orphan", child.si_status)
"""


def test_agent_leaves_no_killed_process_to_its_launcher(pod: FakePod) -> None:
    """As first process of a container, mpiexec would take it for one of its own."""
    shell = shutil.which(pod.shell.words[0])
    assert shell
    words = [shell, *pod.shell.words[1:], str(pod.script), POD, f"echo started; {UNTIL_END}"]
    launcher = subprocess.Popen(
        [sys.executable, "-SE", "-c", REAPER, *words],
        env=pod.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert launcher.stdout
    assert launcher.stdout.readline() == b"started\n"
    pod.cut()
    wait_for(lambda: len(pod.calls()) > 1)
    pod.write("end", "")
    assert launcher.communicate(timeout=60)[0] == b""


@dataclass
class PodCase:
    answer: str
    want: bytes


TERMINATING = '{"metadata":{"deletionTimestamp":"2031-01-01T00:00:00Z"},"status":{"phase":"Running"}}'
POD_CASES = {
    "pod terminating: agent ends": PodCase(TERMINATING, b"pod mnist-worker-1 is terminating"),
    "pod gone, its stream open: agent ends": PodCase(NOT_FOUND, b"pod mnist-worker-1 is gone"),
    "pod finished, its stream open: agent ends": PodCase(
        '{"status":{"phase":"Failed"}}', b"pod mnist-worker-1 has finished"
    ),
}
_PARAMETERS = [
    pytest.param(case, id=name, marks=() if name.startswith("pod terminating") else pytest.mark.long)
    for name, case in POD_CASES.items()
]


@pytest.mark.parametrize("case", _PARAMETERS)
def test_case_54_pod_that_goes_ends_both_sides(case: PodCase, pod: FakePod) -> None:
    agent = pod.start(POD, STUBBORN)
    assert read_line(agent) == b"started\n"
    pod.write("pod", case.answer)
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert case.want in error


@pytest.mark.long
def test_terminating_pod_whose_command_ends_well_is_a_failure(pod: FakePod) -> None:
    agent = pod.start(POD, "trap 'exit 0' TERM; echo started; sleep 600 & wait")
    assert read_line(agent) == b"started\n"
    pod.write("pod", TERMINATING)
    assert agent.wait(60) == 255


@pytest.mark.long
@pytest.mark.parametrize("answer", [FORBIDDEN, UNREACHABLE, RUNNING.replace("Running", "Pending")])
def test_pod_that_cannot_be_looked_at_is_not_taken_for_gone(answer: str, pod: FakePod) -> None:
    pod.write("pod", answer)
    agent = pod.start(POD, "echo started; sleep 3; echo ended")
    assert agent.communicate(timeout=60)[0] == b"started\nended\n"
    assert agent.returncode == 0


def test_pod_gone_with_its_connection_ends_the_agent(pod: FakePod) -> None:
    agent = pod.start(POD, STUBBORN)
    assert read_line(agent) == b"started\n"
    pod.write("pod", NOT_FOUND)
    pod.refuse(NOT_FOUND)
    pod.cut()
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert b"pod mnist-worker-1 is gone" in error
    pod.end_processes()
