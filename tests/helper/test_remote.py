"""Remote start: what lands in the folder, and that remote-start behaves as ssh does towards mpirun.

kubectl is replaced by a script that notes its arguments and runs the command here, as exec would over there.
"""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from argosy.helper.endpoint import RefusedError
from argosy.helper.remote import prepare

KUBECTL = f"""#!{sys.executable}
import json, os, sys
arguments = sys.argv[1:]
split = arguments.index("--")
with open(os.environ["NOTES"], "w") as notes:
    json.dump([os.environ.get("KUBECONFIG"), arguments[:split]], notes)
os.execvp(arguments[split + 1], arguments[split + 1:])
"""


@dataclass
class Case:
    arguments: list[str]
    stdin: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    want_kubectl: list[str] = field(default_factory=lambda: ["exec", "--quiet", "-i", "mnist-worker-1"])
    want_output: str = ""
    want_code: int = 0


CASES = {
    "a command with plain words": Case(["mnist-worker-1", "echo", "a", "b"], want_output="a b\n"),
    "the command's exit code is the wrapper's": Case(["mnist-worker-1", "exit 37"], want_code=37),
    "standard input reaches the command": Case(["mnist-worker-1", "cat"], stdin="x\ny", want_output="x\ny"),
    "with -n nothing is read": Case(
        ["-n", "mnist-worker-1", "cat"],
        stdin="x",
        want_kubectl=["exec", "--quiet", "mnist-worker-1"],
    ),
    "MPICH's form": Case(["-x", "mnist-worker-1", "echo", "ok"], want_output="ok\n"),
    "a host with its domain": Case(["mnist-worker-1.mnist.default.svc", "echo ok"], want_output="ok\n"),
    "quotes are read over there, as ssh does": Case(
        ["mnist-worker-1", "printf '%s|' \"a  b\" 'it'\\''s' \"\\\"q\\\"\""], want_output='a  b|it\'s|"q"|'
    ),
    "MPICH quotes the path of its proxy": Case(
        ["-x", "mnist-worker-1", '"/bin/echo"', "--control-port", "h:1"], want_output="--control-port h:1\n"
    ),
    "words quoted by the caller keep their blanks": Case(
        ["mnist-worker-1", "printf", "%s,", shlex.quote("a  b"), shlex.quote("$HOME `id` \\")],
        want_output="a  b,$HOME `id` \\,",
    ),
    "container and namespace from the environment": Case(
        ["mnist-worker-1", "true"],
        environment={"ARGOSY_EXEC_CONTAINER": "main", "ARGOSY_NAMESPACE": "team"},
        want_kubectl=["exec", "--quiet", "-i", "-n", "team", "-c", "main", "mnist-worker-1"],
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kubectl = tmp_path / "source" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    prepare(tmp_path / "bin", str(kubectl))
    return tmp_path / "bin"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("shell", [[], ["sh"], ["bash", "--posix"]], ids=["by its path", "sh", "bash"])
def test_remote_start(case: Case, shell: list[str], folder: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    result = subprocess.run(
        [*shell, str(folder / "remote-start"), *case.arguments],
        input=case.stdin,
        env={"PATH": os.environ["PATH"], "NOTES": str(notes), **case.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (case.want_code, case.want_output), result.stderr
    assert json.loads(notes.read_text()) == ["/dev/null", case.want_kubectl]


def test_without_a_command_it_tells_its_usage(folder: Path) -> None:
    result = subprocess.run([folder / "remote-start", "host"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (255, "usage: remote-start [-x] [-n] HOST COMMAND...\n")


def test_no_kubectl_is_a_clear_refusal(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="the helper's image must carry one"):
        prepare(tmp_path, str(tmp_path / "missing"))
