"""The `argosy` command in a user's hands: interrupts, mistakes, pipes. One clear line each, no traceback."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from argosy.testing.badday import wait_for
from argosy.testing.controlplane import ARGOSY, ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

_STUBBORN = "trap '' TERM INT; echo begun; while true; do sleep 0.2; done"


def test_an_interrupt_takes_the_run_and_its_pods_away(plane: ControlPlane) -> None:
    running = plane.start(
        "run", "--name", "short", "--replicas", "2", "--", "sh", "-c", "echo begun; sleep 600"
    )
    _wait_for_pods(plane, "short", 2)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out.splitlines()[-1] == "interrupted: deleting short …"
    assert time.monotonic() - began < 45
    assert _left(plane, "short") == []
    assert "not found" in plane.kubectl("get", "tr", "short", code=1).stderr


def test_a_second_interrupt_ends_at_once_and_says_what_is_left(plane: ControlPlane) -> None:
    running = plane.start("run", "--name", "stubborn", "--", "sh", "-c", _STUBBORN)
    _wait_for_pods(plane, "stubborn", 1)
    running.send_signal(signal.SIGINT)
    wait_for(lambda: _terminating(plane, "stubborn"), "the run is being deleted")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=10)
    assert running.returncode == 130
    assert "`argosy rm -n default stubborn` removes them" in out.splitlines()[-1]
    plane.kubectl("delete", "pod", "-l", "argosy.dev/job=stubborn", "--grace-period=0", "--force")
    plane.argosy("rm", "stubborn", code=None)
    assert _left(plane, "stubborn") == []


def test_a_failing_job_exits_1_and_ends_with_the_reason(plane: ControlPlane) -> None:
    failed = plane.argosy("run", "--restarts", "0", "--", "sh", "-c", "echo the end; exit 4", code=1)
    assert "worker-0 │ the end" in failed.stdout
    assert "worker-0 failed (exit 4)" in failed.stdout.splitlines()[-1]
    assert failed.stderr == ""


MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "deleting a run that is not there": (("rm", "missing"), "there is no run missing in namespace default"),
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
def test_a_mistake_is_answered(plane: ControlPlane, words: tuple[str, ...], want: str) -> None:
    refused = plane.argosy(*words, code=None)
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
    "something that is no text": ("\ud8ff", "not text"),
}


@pytest.mark.parametrize(("text", "want"), FILES.values(), ids=FILES.keys())
def test_a_file_with(plane: ControlPlane, tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text, errors="surrogatepass")
    refused = plane.argosy("run", str(path), code=1)
    assert want in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_framework_that_is_not_there_is_said_and_nothing_is_left(plane: ControlPlane) -> None:
    refused = plane.argosy("run", "--name", "odd", "--framework", "nope", "--", "true", code=1)
    assert "spec.framework: there is no framework 'nope'; there are" in refused.stdout
    assert refused.stderr == "refused: deleting odd …\n"
    assert "not found" in plane.kubectl("get", "tr", "odd", code=1).stderr


def test_a_name_that_is_taken_is_said_and_the_run_is_left_alone(plane: ControlPlane) -> None:
    plane.argosy("run", "--name", "taken", "--", "true")
    before = plane.get("tr", "taken")
    refused = plane.argosy("run", "--name", "taken", "--", "false", code=1)
    assert "a run taken is there already; `argosy rm taken` removes it" in refused.stderr
    assert plane.get("tr", "taken") == before
    assert plane.argosy("rm", "taken").stdout == "taken deleted\n"


def test_json_is_json(plane: ControlPlane) -> None:
    plane.argosy("run", "--name", "parsed", "--", "true")
    names = [run["metadata"]["name"] for run in json.loads(plane.argosy("ps", "-o", "json").stdout)["items"]]
    assert "parsed" in names
    assert (
        json.loads(plane.argosy("describe", "parsed", "-o", "json").stdout)["status"]["phase"] == "Succeeded"
    )
    assert json.loads(plane.argosy("status", "-o", "json").stdout)["running"] is True
    plane.argosy("rm", "parsed")


def test_no_control_plane_at_all_is_said_with_the_way_to_one(tmp_path: Path) -> None:
    nowhere = ControlPlane(tmp_path)
    environment = {**nowhere.environment, "HOME": str(tmp_path)}
    for words in (("ps",), ("run", "--", "true"), ("logs", "x"), ("rm", "x")):
        done = subprocess.run(
            [ARGOSY, *words], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1
        assert "`argosy up` starts one here" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["ps", "--help", "crds", "describe piped"])
def test_a_reader_that_leaves_is_no_error_to_tell(plane: ControlPlane, words: str) -> None:
    if words.endswith("piped"):
        plane.argosy("run", "--name", "piped", "--", "true")
    command = f"{ARGOSY} {words} | head -n 0"
    done = subprocess.run(
        ["bash", "-c", command],
        env=plane.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def _wait_for_pods(plane: ControlPlane, name: str, count: int) -> None:
    def begun() -> bool:
        said = plane.argosy("logs", name, code=None).stdout
        return said.count("begun") == count

    wait_for(begun, f"{name} runs", 60)


def _left(plane: ControlPlane, name: str) -> list[str]:
    return plane.kubectl("get", "pods", "-l", f"argosy.dev/job={name}", "-o", "name").stdout.split()


def _terminating(plane: ControlPlane, name: str) -> bool:
    found = plane.kubectl("get", "tr", name, "-o", "jsonpath={.metadata.deletionTimestamp}", code=None)
    return bool(found.stdout)
