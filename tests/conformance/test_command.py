"""The `argosy` command in a user's hands: interrupts, mistakes, pipes. One clear line each, no traceback."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.user import Tenant
from tests.support.waiting import wait_for

_PATIENT = "trap exit TERM; echo begun; sleep 600 & wait"
_STUBBORN = "trap '' TERM INT; echo begun; while true; do sleep 0.2; done"


def test_an_interrupt_takes_the_run_and_its_pods_away(tenant: Tenant) -> None:
    running = tenant.start("run", "--name", "short", "--replicas", "2", "--", "sh", "-c", _PATIENT)
    _wait_for_pods(tenant, "short", 2)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out.splitlines()[-1] == "interrupted: deleting short …"
    assert _left(tenant, "short") == []
    assert "not found" in tenant.kubectl("get", "tr", "short", code=1).stderr


def test_a_second_interrupt_ends_at_once_and_says_what_is_left(tenant: Tenant) -> None:
    running = tenant.start("run", "--name", "stubborn", "--", "sh", "-c", _STUBBORN)
    _wait_for_pods(tenant, "stubborn", 1)
    running.send_signal(signal.SIGINT)
    wait_for(lambda: _terminating(tenant, "stubborn"), "the run is being deleted")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert f"`argosy rm -n {tenant.namespace} stubborn` removes them" in out.splitlines()[-1]
    tenant.kubectl("delete", "pod", "-l", "argosy.dev/job=stubborn", "--grace-period=0", "--force")
    tenant.argosy("rm", "stubborn", code=None)
    assert _left(tenant, "stubborn") == []


def test_a_failing_job_exits_1_and_ends_with_the_reason(tenant: Tenant) -> None:
    failed = tenant.argosy("run", "--restarts", "0", "--", "sh", "-c", "echo the end; exit 4", code=1)
    assert "worker-0 │ the end" in failed.stdout
    reason, where_to_look = failed.stdout.splitlines()[-2:]
    assert "worker-0 failed (exit 4)" in reason
    assert f"`argosy logs -n {tenant.namespace} " in where_to_look
    assert failed.stderr == ""


MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "deleting a run that is not there": (("rm", "missing"), "there is no run missing in namespace "),
    "describing a run that is not there": (("describe", "missing"), '"missing" not found'),
    "logs of a run that is not there": (("logs", "missing"), '"missing" not found'),
    "resizing a run that is not there": (("scale", "missing", "2"), '"missing" not found'),
    "a namespace that is not there": (
        ("run", "-n", "missing", "--", "true"),
        'namespaces "missing" not found',
    ),
    "a file that is not there": (("run", "missing.yaml"), "missing.yaml: No such file or directory"),
    "a name that cannot be one": (
        ("run", "--name", "Bad_Name", "--", "true"),
        'metadata.name: Invalid value: "Bad_Name"',
    ),
    "a kubeconfig that is not there": (("ps", "--kubeconfig", "/missing"), "/missing"),
    "a context that is not there": (("ps", "--context", "missing"), "no context named 'missing'"),
    "a variable without a value": (("run", "--env", "A", "--", "true"), "'A' is not NAME=VALUE"),
}


@pytest.mark.parametrize(("words", "want"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_answered(tenant: Tenant, words: tuple[str, ...], want: str) -> None:
    refused = tenant.argosy(*words, code=None)
    assert refused.returncode in (1, 2)
    assert want in refused.stderr
    assert "Traceback" not in refused.stderr


FILES = {
    "no YAML": ("a: [b", "not YAML: line 1, column 6"),
    "a kind that the cluster does not know": (
        "{apiVersion: v1, kind: Nope, metadata: {name: x}}\n---\n"
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x}, spec: {}}",
        "the cluster does not know Nope in v1",
    ),
    "a group that the cluster does not know": (
        "{apiVersion: no.pe/v1, kind: Nope, metadata: {name: x}}\n---\n"
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x}, spec: {}}",
        "the cluster does not know no.pe/v1",
    ),
    "no run": ("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "holds 0 TrainingRuns"),
    "a run without a name": (
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, spec: {}}",
        "metadata.name: every document needs one",
    ),
    "a run without anything": (
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x}}",
        "spec: Required value",
    ),
    "an unknown field": (
        "{apiVersion: argosy.dev/v1alpha1, kind: TrainingRun, metadata: {name: x},"
        " spec: {framework: custom, rols: {}, roles: {worker: {template: {}}}}}",
        'TrainingRun x: spec.rols: unknown field; did you mean "roles"?',
    ),
    "something that is no text": ("\ud8ff", "not text"),
}


@pytest.mark.parametrize(("text", "want"), FILES.values(), ids=FILES.keys())
def test_a_file_with(tenant: Tenant, tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text, errors="surrogatepass")
    refused = tenant.argosy("run", str(path), code=1)
    assert want in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_framework_that_is_not_there_is_said_and_nothing_is_left(tenant: Tenant) -> None:
    refused = tenant.argosy("run", "--name", "odd", "--framework", "nope", "--", "true", code=1)
    assert 'spec.framework: unknown framework "nope" (known frameworks: ' in refused.stdout
    assert refused.stderr == "refused: deleting odd …\n"
    assert "not found" in tenant.kubectl("get", "tr", "odd", code=1).stderr


def test_a_name_that_is_taken_is_said_and_the_run_is_left_alone(tenant: Tenant) -> None:
    tenant.argosy("run", "--name", "taken", "--", "true")
    before = tenant.get("tr", "taken")
    refused = tenant.argosy("run", "--name", "taken", "--", "false", code=1)
    assert "a run taken is there already; `argosy rm taken` removes it" in refused.stderr
    assert tenant.get("tr", "taken") == before
    assert tenant.argosy("rm", "taken").stdout == "taken deleted\n"


def test_json_is_json(tenant: Tenant) -> None:
    tenant.argosy("run", "--name", "parsed", "--", "true")
    names = [run["metadata"]["name"] for run in json.loads(tenant.argosy("ps", "-o", "json").stdout)["items"]]
    assert "parsed" in names
    assert (
        json.loads(tenant.argosy("describe", "parsed", "-o", "json").stdout)["status"]["phase"] == "Succeeded"
    )
    tenant.argosy("rm", "parsed")


@pytest.mark.parametrize("words", ["ps", "--help", "crds", "describe piped"])
def test_a_reader_that_leaves_is_no_error_to_tell(tenant: Tenant, words: str) -> None:
    if words.endswith("piped"):
        tenant.argosy("run", "--name", "piped", "--", "true")
    command = f"{' '.join(tenant.argosy_command(*words.split()))} | head -n 0"
    done = subprocess.run(
        ["bash", "-c", command],
        env=tenant.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def _wait_for_pods(tenant: Tenant, name: str, count: int) -> None:
    def begun() -> bool:
        said = tenant.argosy("logs", name, code=None).stdout
        return said.count("begun") == count

    wait_for(begun, f"{name} runs", 60)


def _left(tenant: Tenant, name: str) -> list[str]:
    return tenant.kubectl("get", "pods", "-l", f"argosy.dev/job={name}", "-o", "name").stdout.split()


def _terminating(tenant: Tenant, name: str) -> bool:
    found = tenant.kubectl("get", "tr", name, "-o", "jsonpath={.metadata.deletionTimestamp}", code=None)
    return bool(found.stdout)
