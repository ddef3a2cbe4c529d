"""Tests for remote exec: the files that it writes, and that it behaves like ssh towards the one who calls it.

kubectl is a stand-in that runs commands locally (`tests.support.fake_kubectl`); the real one is in
`tests/e2e/test_remote_exec.py`. `test_remote_faults.py` is about connections that fail, `test_remote_ends.py`
about the end of either side.
"""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from argosy.helper.errors import RejectedError
from argosy.helper.remote import prepare
from tests.support.fake_kubectl import POD, FakePod
from tests.support.waiting import wait_for

PLAIN = ["exec", "--quiet", "-i", "-n", "team", POD]


@dataclass
class Case:
    arguments: list[str]
    stdin: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    want_kubectl: list[str] = field(default_factory=lambda: PLAIN)
    want_output: str = ""
    want_error: str = ""
    want_code: int = 0


# Horovod's calls, as they were seen; the words of a worker's command are one argument.
HOROVOD_WORKER = (
    "cd /tmp > /dev/null 2>&1 ; env HOROVOD_HOSTNAME=mnist-worker-1 HOROVOD_RANK=0 "
    "PS1='$ ' PYTHONUNBUFFERED=1 sh -c 'echo $HOROVOD_HOSTNAME \"$PS1\" $PWD'"
)

CASES = {
    "plain words: executed": Case([POD, "echo", "a", "b"], want_output="a b\n"),
    "exit code of the command: returned": Case([POD, "exit 37"], want_code=37),
    "command killed by a signal: 128 and its number": Case([POD, "kill -9 $$"], want_code=137),
    "both streams: kept apart": Case(
        [POD, "echo a; echo b >&2; printf c; printf d >&2"], want_output="a\nc", want_error="b\nd"
    ),
    "standard input: passed to the command": Case([POD, "cat"], stdin="x\ny", want_output="x\ny"),
    "-n: standard input is not read": Case(["-n", POD, "cat"], stdin="x"),
    "options after the host, as with Horovod: ignored": Case(
        [POD, "-o", "StrictHostKeyChecking=no", "-p", "22", "echo ok"], want_output="ok\n"
    ),
    "worker of Horovod by ssh: executed": Case(
        ["-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=no", POD, HOROVOD_WORKER],
        want_output="mnist-worker-1 $  /tmp\n",
    ),
    "worker of Horovod by kubexec: executed": Case(
        [POD, HOROVOD_WORKER], want_output="mnist-worker-1 $  /tmp\n"
    ),
    "network check of Horovod by kubexec: executed": Case(
        [POD, "echo", "-m", "horovod.runner.task_fn", "gAN9cQA=", "gAN9cQE="],
        want_output="-m horovod.runner.task_fn gAN9cQA= gAN9cQE=\n",
    ),
    "options after the command: passed to the command": Case(
        ["-o", "A=b", POD, "printf", "%s,", "-o", "x"], want_output="-o,x,"
    ),
    "host after --: used": Case(["-n", "--", POD, "echo ok"], want_output="ok\n"),
    "-x, as with MPICH: ignored": Case(["-x", POD, "echo", "ok"], want_output="ok\n"),
    "host with a domain: pod is its first label": Case(
        [f"{POD}.mnist.default.svc", "echo ok"], want_output="ok\n"
    ),
    "quotes: interpreted by the remote shell, as with ssh": Case(
        [POD, "printf '%s|' \"a  b\" 'it'\\''s' \"\\\"q\\\"\""], want_output='a  b|it\'s|"q"|'
    ),
    "quoted path of the command: unquoted by the remote shell": Case(
        ["-x", POD, '"/bin/echo"', "--control-port", "h:1"], want_output="--control-port h:1\n"
    ),
    "quoted words with blanks and special characters: unchanged": Case(
        [POD, "printf", "%s,", shlex.quote("a  b"), shlex.quote("$HOME `id` \\")],
        want_output="a  b,$HOME `id` \\,",
    ),
    "command of several lines: unchanged": Case(
        [POD, "cat << end\n  a\n\\b \n#\nend\nprintf ' x '\n"], want_output="  a\n\\b \n#\n x "
    ),
    "text in UTF-8: unchanged": Case([POD, "printf 'äöü\n☃'"], want_output="äöü\n☃"),
    "NUL and other bytes: unchanged": Case([POD, "printf 'a\\0b\\n\\001\\0'"], want_output="a\0b\n\1\0"),
    "container and namespace in the environment: used": Case(
        [POD, "true"],
        environment={"ARGOSY_EXEC_CONTAINER": "main", "ARGOSY_NAMESPACE": "other"},
        want_kubectl=["exec", "--quiet", "-i", "-n", "other", "-c", "main", POD],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_remote_exec(case: Case, pod: FakePod) -> None:
    agent = pod.start(*case.arguments, stdin=subprocess.PIPE, environment=case.environment)
    output, error = agent.communicate(case.stdin.encode(), timeout=60)
    result = (agent.returncode, output.decode(), error.decode())
    assert result == (case.want_code, case.want_output, case.want_error)
    assert pod.calls()[0] == ["/dev/null", case.want_kubectl]
    wait_for(lambda: not pod.leftovers(), lambda: str(pod.leftovers()))


INVALID_HOSTS = {
    "option": "--kubeconfig=/tmp/x",
    "path": "../../secrets/x",
    "blanks": "a b",
    "command": "$(touch x)",
    "upper case": "Pod",
    "empty": "",
}


@pytest.mark.parametrize("host", INVALID_HOSTS.values(), ids=INVALID_HOSTS.keys())
def test_invalid_host_name_is_rejected_without_a_request(host: str, pod: FakePod) -> None:
    agent = pod.start("--", host, "true")
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert b"not the host name of a pod" in error
    assert not pod.calls()


def test_standard_input_and_output_of_any_length_and_content(pod: FakePod) -> None:
    content = os.urandom(3 << 20)
    agent = pod.start(POD, "cat; cat /dev/null", stdin=subprocess.PIPE)
    output, _ = agent.communicate(content, timeout=100)
    assert agent.returncode == 0
    assert output == content


@pytest.mark.parametrize("shell", ["busybox"], indirect=True)
def test_busybox_is_enough_in_both_pods(pod: FakePod) -> None:
    command = "read -r a; echo $a; echo b >&2; trap 'exit 9' TERM; echo started; sleep 600 & wait"
    agent = pod.start(POD, command, stdin=subprocess.PIPE)
    assert agent.stdin
    assert agent.stdout
    agent.stdin.write(b"one\n")
    agent.stdin.close()
    assert [agent.stdout.readline() for _ in range(2)] == [b"one\n", b"started\n"]
    pod.cut()
    wait_for(lambda: len(pod.calls()) > 2)
    agent.terminate()
    assert agent.wait(60) == 9
    assert agent.stderr
    assert agent.stderr.read() == b"b\n"


def test_standard_input_that_stays_open_does_not_keep_remote_exec_running(pod: FakePod) -> None:
    agent = pod.start(POD, "echo done", stdin=subprocess.PIPE)
    assert agent.stdout
    assert agent.wait(60) == 0
    assert agent.stdout.read() == b"done\n"
    assert len(pod.calls()) == 1, "no connection for an input without data"


def test_standard_input_is_passed_on_while_it_is_open(pod: FakePod) -> None:
    agent = pod.start(POD, "read -r a; echo $a; read -r b; echo $b; cat", stdin=subprocess.PIPE)
    assert agent.stdin
    assert agent.stdout
    for word in (b"one\n", b"two\n"):
        agent.stdin.write(word)
        agent.stdin.flush()
        assert agent.stdout.readline() == word
    agent.stdin.close()
    assert agent.wait(60) == 0


def test_output_arrives_while_the_command_runs(pod: FakePod) -> None:
    agent = pod.start(POD, "printf partial; until [ -e $FAKE_POD/seen ]; do sleep 0.1; done")
    assert agent.stdout
    assert os.read(agent.stdout.fileno(), 100) == b"partial"
    pod.write("seen", "")
    assert agent.wait(60) == 0
    assert len(pod.calls()) == 1, "the connection has held"


def test_command_gets_the_environment_of_its_container(pod: FakePod) -> None:
    """Variables, umask, folder and signals are those of an exec; one more variable marks its processes."""
    probe = "env; umask; pwd; grep -e SigIgn -e SigBlk /proc/self/status; ls /proc/self/fd"
    names = ("id", "mode", "limit", "line", "command", "number", "file", "program", "out", "code", "size")
    environment = {**pod.environment, **dict.fromkeys(names, "value")}
    pod.write("environment", json.dumps(environment))
    agent = pod.start(POD, probe)
    output, error = agent.communicate(timeout=60)
    plain = subprocess.run(["/bin/sh", "-c", probe], env=environment, capture_output=True, check=True)
    of_shells = ("OLDPWD=", "SHLVL=", "_=", "PWD=")
    got = [line for line in output.decode().splitlines() if not line.startswith(of_shells)]
    want = [line for line in plain.stdout.decode().splitlines() if not line.startswith(of_shells)]
    marks = [line for line in got if line.startswith("ARGOSY_REMOTE_")]
    assert (len(marks), error) == (1, b"")
    assert sorted(line for line in got if line not in marks) == sorted(want)


def test_closed_standard_streams_are_accepted(pod: FakePod) -> None:
    words = shlex.join([*pod.shell.words, str(pod.script), POD, "echo out; echo err >&2; cat; exit 4"])
    result = subprocess.run(
        ["sh", "-c", f"{words} <&- >&- 2>&-"], env=pod.environment, check=False, timeout=60
    )
    assert result.returncode == 4


def test_process_left_behind_by_a_command_that_has_ended_goes_on(pod: FakePod) -> None:
    daemon = "(trap '' HUP; until [ -e $FAKE_POD/end ]; do sleep 0.1; done; echo $? > $FAKE_POD/ended)"
    agent = pod.start(POD, f"{daemon} > /dev/null 2>&1 & echo started")
    output, _ = agent.communicate(timeout=60)
    assert (agent.returncode, output) == (0, b"started\n")
    assert pod.command_processes()
    pod.write("end", "")
    wait_for((pod.folder / "ended").exists)


@pytest.mark.long
def test_process_left_behind_with_open_streams_does_not_keep_remote_exec_running(pod: FakePod) -> None:
    agent = pod.start(POD, "until [ -e $FAKE_POD/end ]; do sleep 0.1; done & echo started; exit 3")
    output, _ = agent.communicate(timeout=60)
    assert (agent.returncode, output) == (3, b"started\n")
    pod.write("end", "")


def test_kubexec_is_found_by_its_name_and_has_few_processes(pod: FakePod) -> None:
    name = pod.write_kubexec("et")
    agent = subprocess.Popen(
        [*pod.shell.words, name, POD, "echo started; until [ -e $FAKE_POD/end ]; do sleep 0.1; done"],
        env=pod.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert agent.stdout
    with agent.stdout:
        assert agent.stdout.readline() == b"started\n"
        words = Path(f"/proc/{agent.pid}/cmdline").read_bytes().decode().split("\0")
        place = words.index(str(name))
        assert words[place + 1] == POD
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
        wait_for(lambda: len(children.read_text().split()) <= 3, children.read_text)
        pod.write("end", "")
        assert agent.wait(60) == 0


def test_ssh_in_the_folder_bin_runs_remote_exec(pod: FakePod) -> None:
    path = f"{pod.folder / 'bin' / 'bin'}{os.pathsep}{pod.environment['PATH']}"
    words = f"-o PasswordAuthentication=no -o StrictHostKeyChecking=no -p 22 {POD} 'echo ok'"
    result = subprocess.run(
        ["/bin/sh", "-c", f"ssh {words}"],
        env={**pod.environment, "PATH": path},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert result.stdout == b"ok\n"
    assert pod.calls()[0] == ["/dev/null", PLAIN]


def test_kubexec_uses_the_container_of_its_job_and_the_kubectl_of_its_folder(pod: FakePod) -> None:
    script = pod.write_kubexec("et")
    result = subprocess.run(
        [*pod.shell.words, script, POD, "echo", "-n", "ok; exit 4"],
        env={**pod.environment, "ARGOSY_EXEC_CONTAINER": "other"},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (4, b"ok")
    assert pod.calls()[0][1] == ["exec", "--quiet", "-i", "-n", "team", "-c", "et", POD]


def test_missing_command_prints_the_usage(pod: FakePod) -> None:
    agent = pod.start("host")
    _, error = agent.communicate(timeout=60)
    assert (agent.returncode, error) == (255, b"usage: remote-exec [-x] [-n] HOST COMMAND...\n")


def test_kubectl_that_cannot_be_executed_is_reported(pod: FakePod) -> None:
    (pod.folder / "bin" / "kubectl").unlink()
    agent = pod.start(POD, "true")
    _, error = agent.communicate(timeout=60)
    assert agent.returncode == 255
    assert error.decode() == f"argosy: {pod.folder}/bin/kubectl: not a program that can be executed\n"


def test_missing_kubectl_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="the helper's image must carry one"):
        prepare(tmp_path, str(tmp_path / "missing"))


def test_remote_exec_is_one_file_with_the_part_of_the_other_pod(tmp_path: Path) -> None:
    prepare(tmp_path, sys.executable)
    script = (tmp_path / "remote-exec").read_text()
    assert script.startswith("#!/bin/sh\n")
    assert "@remote-keeper@" not in script
    assert script.index("remote_program() {") < script.index("\nkeeper() {") < script.index("\nPROGRAM\n")


def test_prepared_files_can_be_executed(tmp_path: Path) -> None:
    prepare(tmp_path, sys.executable)
    for name in ("kubectl", "remote-exec", "bin/ssh"):
        assert os.access(tmp_path / name, os.X_OK)
