"""The `argosy` command on a cluster: interrupts, user errors and pipes give one clear line, no traceback."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.user import User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long_on_cluster

_ENDS_ON_SIGTERM = "trap exit TERM; echo begun; sleep 600 & wait"
_IGNORES_SIGNALS = "trap '' TERM INT; echo begun; while true; do sleep 0.2; done"


def test_an_interrupt_deletes_the_job_and_its_pods(user: User) -> None:
    running = user.start("run", "--name", "short", "--replicas", "2", "--", "sh", "-c", _ENDS_ON_SIGTERM)
    _wait_for_pods(user, "short", 2)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out.splitlines()[-1] == "interrupted: deleting short …"
    assert _pods(user, "short") == []
    assert "not found" in user.kubectl("get", "tr", "short", code=1).stderr


def test_a_second_interrupt_exits_at_once_and_says_what_may_be_pods(user: User) -> None:
    running = user.start("run", "--name", "stubborn", "--", "sh", "-c", _IGNORES_SIGNALS)
    _wait_for_pods(user, "stubborn", 1)
    running.send_signal(signal.SIGINT)
    wait_for(lambda: _terminating(user, "stubborn"), "the run is being deleted")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert f"`argosy rm -n {user.namespace} stubborn` deletes them" in out.splitlines()[-1]
    user.kubectl("delete", "pod", "-l", "argosy.dev/job=stubborn", "--grace-period=0", "--force")
    user.argosy("rm", "stubborn", code=None)
    assert _pods(user, "stubborn") == []


def test_a_failing_job_exits_1_and_ends_with_the_reason(user: User) -> None:
    failed = user.argosy("run", "--restarts", "0", "--", "sh", "-c", "echo the end; exit 4", code=1)
    assert "worker-0 │ the end" in failed.stdout
    reason, next_step = failed.stdout.splitlines()[-2:]
    assert "worker-0 failed (exit 4)" in reason
    assert f"`argosy logs -n {user.namespace} " in next_step
    assert failed.stderr == ""


USER_ERRORS: dict[str, tuple[tuple[str, ...], str]] = {
    "rm of a job that does not exist": (("rm", "missing"), "no job missing in namespace "),
    "describe of a job that does not exist": (("describe", "missing"), '"missing" not found'),
    "logs of a job that does not exist": (("logs", "missing"), '"missing" not found'),
    "scale of a job that does not exist": (("scale", "missing", "2"), '"missing" not found'),
    "a namespace that does not exist": (
        ("run", "-n", "missing", "--", "true"),
        'namespaces "missing" not found',
    ),
    "a file that does not exist": (("run", "missing.yaml"), "missing.yaml: No such file or directory"),
    "an invalid name": (
        ("run", "--name", "Bad_Name", "--", "true"),
        'metadata.name: Invalid value: "Bad_Name"',
    ),
    "a kubeconfig that does not exist": (("ps", "--kubeconfig", "/missing"), "/missing"),
    "a context that does not exist": (("ps", "--context", "missing"), 'unknown context "missing"'),
    "a variable without a value": (("run", "--env", "A", "--", "true"), "'A': must be NAME=VALUE"),
}


@pytest.mark.parametrize(("words", "want"), USER_ERRORS.values(), ids=USER_ERRORS.keys())
def test_a_user_error_is_reported_without_a_traceback(user: User, words: tuple[str, ...], want: str) -> None:
    refused = user.argosy(*words, code=None)
    assert refused.returncode in (1, 2)
    assert want in refused.stderr
    assert "Traceback" not in refused.stderr


FILES = {
    "a file that is not YAML": ("a: [b", "not YAML: line 1, column 6"),
    "a kind that the cluster does not serve": (
        "{apiVersion: v1, kind: Nope, metadata: {name: x}}\n---\n"
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x}, spec: {}}",
        "Nope: this cluster does not serve this kind in v1",
    ),
    "an API group that the cluster does not serve": (
        "{apiVersion: no.pe/v1, kind: Nope, metadata: {name: x}}\n---\n"
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x}, spec: {}}",
        "Nope: this cluster does not serve no.pe/v1",
    ),
    "a file without a TrainingRun": (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}",
        "has 0 jobs: must have exactly one",
    ),
    "a TrainingRun without a name": (
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, spec: {}}",
        "TrainingRun: metadata.name: must be set",
    ),
    "a TrainingRun without a spec": (
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x}}",
        "spec: Required value",
    ),
    "a TrainingRun with an unknown field": (
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x},"
        " spec: {framework: custom, rols: {}, roles: {worker: {template: {}}}}}",
        'TrainingRun x: spec.rols: unknown field; did you mean "roles"?',
    ),
    "a file that is not text": ("\ud8ff", "not text"),
}


@pytest.mark.parametrize(("text", "want"), FILES.values(), ids=FILES.keys())
def test_an_invalid_file_is_reported_in_one_line(user: User, tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text, errors="surrogatepass")
    refused = user.argosy("run", str(path), code=1)
    assert want in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_job_with_an_unknown_framework_is_rejected_and_deleted(user: User) -> None:
    refused = user.argosy("run", "--name", "odd", "--framework", "nope", "--", "true", code=1)
    assert 'spec.framework: unknown framework "nope" (known frameworks: ' in refused.stdout
    assert refused.stderr == "rejected: deleting odd …\n"
    assert "not found" in user.kubectl("get", "tr", "odd", code=1).stderr


def test_an_existing_job_of_the_same_name_is_reported_and_not_changed(user: User) -> None:
    user.argosy("run", "--name", "taken", "--", "true")
    before = user.get("tr", "taken")
    refused = user.argosy("run", "--name", "taken", "--", "false", code=1)
    assert "TrainingRun taken already exists; `argosy rm taken` deletes it" in refused.stderr
    assert user.get("tr", "taken") == before
    assert user.argosy("rm", "taken").stdout == "taken deleted\n"


def test_json_output_can_be_parsed(user: User) -> None:
    user.argosy("run", "--name", "parsed", "--", "true")
    names = [run["metadata"]["name"] for run in json.loads(user.argosy("ps", "-o", "json").stdout)["items"]]
    assert "parsed" in names
    assert (
        json.loads(user.argosy("describe", "parsed", "-o", "json").stdout)["status"]["phase"] == "Succeeded"
    )
    user.argosy("rm", "parsed")


@pytest.mark.parametrize("words", ["ps", "--help", "crds", "describe piped"])
def test_a_closed_pipe_is_not_reported_as_an_error(user: User, words: str) -> None:
    if words.endswith("piped"):
        user.argosy("run", "--name", "piped", "--", "true")
    command = f"{' '.join(user.argosy_command(*words.split()))} | head -n 0"
    done = subprocess.run(
        ["bash", "-c", command],
        env=user.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def _wait_for_pods(user: User, name: str, count: int) -> None:
    def begun() -> bool:
        output = user.argosy("logs", name, code=None).stdout
        return output.count("begun") == count

    wait_for(begun, f"{name} runs", 60)


def _pods(user: User, name: str) -> list[str]:
    return user.kubectl("get", "pods", "-l", f"argosy.dev/job={name}", "-o", "name").stdout.split()


def _terminating(user: User, name: str) -> bool:
    result = user.kubectl("get", "tr", name, "-o", "jsonpath={.metadata.deletionTimestamp}", code=None)
    return bool(result.stdout)
