"""Jobs and scalers that were stored under a CRD that does not check them are reported with field paths."""

import msgspec
import pytest

from argosy.dialects.et.spec import read_job_spec, read_scale_in_spec, read_scale_out_spec
from argosy.dialects.et.validation import load_job, replicas_problem, scaler_error
from argosy.kinds.scalers import ScaleInSpec, ScaleOutSpec
from argosy.kinds.trainingjob import (
    ATTACH_MODES,
    CLEAN_POD_POLICIES,
    REPLACEMENT_POLICIES,
    RESTART_POLICIES,
    TrainingJob,
    TrainingJobSpec,
)
from argosy.workload.model import Problems
from tests.support.trainingjobs import REMOVED, Json, example, job, scale_in, scale_out

LAUNCHER, WORKER = "spec.etReplicaSpecs.launcher", "spec.etReplicaSpecs.worker"


def problems_of(manifest: Json, *, started: bool = False) -> str:
    """All problems of a job, joined; empty if it is valid."""
    result = load_job(msgspec.convert(manifest, TrainingJob), started=started)
    return str(result) if isinstance(result, Problems) else ""


VALID: dict[str, Json] = {
    "example of the README: valid": example("training_job.yaml"),
    "minReplicas, replicas and maxReplicas equal: valid": job(
        changes={"worker.minReplicas": 2, "worker.maxReplicas": 2}
    ),
    "name whose last worker has 63 characters: valid": job("x" * 54),
    **{
        f"{path} {value!r}: valid": job(changes={path: value})
        for path, values in {
            "cleanPodPolicy": CLEAN_POD_POLICIES,
            "restartPolicy": RESTART_POLICIES,
            "launcherAttachMode": ATTACH_MODES,
            "worker.restartPolicy": REPLACEMENT_POLICIES,
            "launcher.restartPolicy": REPLACEMENT_POLICIES,
        }.items()
        for value in values
    },
    "schedulingPolicy for all pods: valid": job(
        changes={"schedulingPolicy": {"minAvailable": 3, "minResources": {"cpu": 1, "memory": "2Gi"}}}
    ),
}


@pytest.mark.parametrize("manifest", VALID.values(), ids=VALID.keys())
def test_valid_job(manifest: Json) -> None:
    assert problems_of(manifest) == ""
    assert problems_of(manifest, started=True) == ""


CHOICES = {
    "cleanPodPolicy": "All or Running or None",
    "restartPolicy": "Never or OnFailure",
    "launcherAttachMode": "ssh or kubexec",
    "worker.restartPolicy": "Always or OnFailure or Never or ExitCode",
    "launcher.restartPolicy": "Always or OnFailure or Never or ExitCode",
}


def full_path(path: str) -> str:
    return f"spec.etReplicaSpecs.{path}" if path.startswith(("worker.", "launcher.")) else f"spec.{path}"


INVALID: dict[str, tuple[Json, str]] = {
    **{
        f"case 10, unknown {path}: InvalidSpec": (
            job(changes={path: "sometimes"}),
            f'{full_path(path)}: invalid value "sometimes": must be {choice}',
        )
        for path, choice in CHOICES.items()
    },
    **{
        f"{path} 0: InvalidSpec": (
            job(changes={path: 0}),
            f"{full_path(path)}: invalid value 0: must be at least 1",
        )
        for path in ("worker.minReplicas", "slotsPerWorker", "activeDeadlineSeconds")
    },
    **{
        f"{path} -1: InvalidSpec": (
            job(changes={path: -1}),
            f"{full_path(path)}: invalid value -1: must be at least 0",
        )
        for path in (
            *("backoffLimit", "ttlSecondsAfterFinished"),
            *("schedulingPolicy.minAvailable", "schedulingPolicy.scheduleTimeoutSeconds"),
        )
    },
    "maxReplicas 0: InvalidSpec": (
        job(changes={"worker.maxReplicas": 0}),
        f"{WORKER}.maxReplicas: invalid value 0: must be at least 1;"
        f" {WORKER}.replicas: invalid value 2: must be at most maxReplicas 0",
    ),
    "case 10, launcher without containers: InvalidSpec": (
        job(changes={"launcher.template": {"spec": {"containers": []}}}),
        f"{LAUNCHER}.template.spec.containers: must have at least one container",
    ),
    "worker with an empty template: InvalidSpec": (
        job(changes={"worker.template": {}}),
        f"{WORKER}.template.spec.containers: must have at least one container",
    ),
    "template with a text in place of a list: InvalidSpec": (
        job(changes={"worker.template": {"spec": {"containers": [{"name": "a", "command": "sh"}]}}}),
        f'{WORKER}.template.spec.containers[0].command: invalid value "sh": must be a list; write ["sh"]',
    ),
    "two launchers: InvalidSpec": (
        job(changes={"launcher.replicas": 2}),
        f"{LAUNCHER}.replicas: invalid value 2: must be 1",
    ),
    "case 10, maxReplicas below minReplicas: InvalidSpec": (
        job(changes={"worker.minReplicas": 3, "worker.maxReplicas": 2, "worker.replicas": 3}),
        f"{WORKER}.maxReplicas: invalid value 2: must be at least minReplicas 3;"
        f" {WORKER}.replicas: invalid value 3: must be at most maxReplicas 2",
    ),
    "case 10, replicas above maxReplicas: InvalidSpec": (
        job(changes={"worker.replicas": 10}),
        f"{WORKER}.replicas: invalid value 10: must be at most maxReplicas 9",
    ),
    "case 10, replicas below minReplicas: InvalidSpec": (
        job(changes={"worker.minReplicas": 3}),
        f"{WORKER}.replicas: invalid value 2: must be at least minReplicas 3",
    ),
    "replicas 0: InvalidSpec": (
        job(changes={"worker.replicas": 0}),
        f"{WORKER}.replicas: invalid value 0: must be between 1 and 10000",
    ),
    "more workers than names fit into a status: InvalidSpec": (
        job(changes={"worker.replicas": 10_001, "worker.maxReplicas": REMOVED}),
        f"{WORKER}.replicas: invalid value 10001: must be between 1 and 10000",
    ),
    "name that begins with a digit: InvalidSpec": (
        job("7b"),
        "metadata.name: the name of its last worker, '7b-worker-1' may only have lower-case letters,",
    ),
    "name with a dot: InvalidSpec": (
        job("a.b"),
        "metadata.name: the name of its last worker, 'a.b-worker-1' may only have lower-case letters,",
    ),
    "name that is too long by the last index: InvalidSpec": (
        job("x" * 54, {"worker.replicas": 11, "worker.maxReplicas": 11}),
        f"metadata.name: the name of its last worker, '{'x' * 54}-worker-10' has 64 characters, 1 more",
    ),
    **{
        f"sshAuthMountPath {path!r}: InvalidSpec": (
            job(changes={"sshAuthMountPath": path}),
            f'spec.sshAuthMountPath: invalid value "{path}": must be an absolute path without',
        )
        for path in ("", ".ssh", "/a:b", "/a/../b")
    },
    "minAvailable above the number of pods: InvalidSpec": (
        job(changes={"schedulingPolicy.minAvailable": 4}),
        "spec.schedulingPolicy.minAvailable: invalid value 4: must be at most 3, the number of all pods",
    ),
    "minResources that is no quantity: InvalidSpec": (
        job(changes={"schedulingPolicy.minResources": {"cpu": "much"}}),
        "spec.schedulingPolicy.minResources[cpu]: invalid quantity 'much': must be a number",
    ),
    "text for a number: InvalidSpec": (
        job(changes={"backoffLimit": "six"}),
        "spec.backoffLimit: expected `int`, got `str`",
    ),
    "no worker: InvalidSpec": (
        job(changes={"etReplicaSpecs.worker": REMOVED}),
        "spec.etReplicaSpecs.worker: required",
    ),
    "several errors: all of them, in a fixed order": (
        job(changes={"restartPolicy": "Always", "worker.replicas": 12, "launcher.replicas": 0}),
        f"{LAUNCHER}.replicas: invalid value 0: must be 1;"
        ' spec.restartPolicy: invalid value "Always": must be Never or OnFailure;'
        f" {WORKER}.replicas: invalid value 12: must be at most maxReplicas 9",
    ),
}


@pytest.mark.parametrize(("manifest", "want"), INVALID.values(), ids=INVALID.keys())
def test_invalid_job(manifest: Json, want: str) -> None:
    assert problems_of(manifest).startswith(want)


@pytest.mark.parametrize("replicas", [0, 10, 20_000])
def test_started_job_with_replicas_out_of_range_stays_valid(replicas: int) -> None:
    """Its workers exist: the number is ignored, and an event has the problem."""
    manifest = job(changes={"worker.replicas": replicas})
    assert problems_of(manifest)
    assert problems_of(manifest, started=True) == ""
    raw = manifest["spec"]
    assert isinstance(raw, dict)
    spec = read_job_spec(raw)
    assert isinstance(spec, TrainingJobSpec)
    assert str(replicas_problem(spec)).startswith(f"{WORKER}.replicas: invalid value {replicas}: must be")


def test_started_job_may_be_scaled_below_its_gang() -> None:
    manifest = job(changes={"worker.replicas": 1, "schedulingPolicy.minAvailable": 3})
    assert problems_of(manifest)
    assert problems_of(manifest, started=True) == ""


def test_messages_do_not_grow_with_the_values() -> None:
    huge = "x" * 100_000
    manifest = job(changes={"cleanPodPolicy": huge, "schedulingPolicy.minResources": {huge: huge}})
    assert len(problems_of(manifest)) < 3_000


def scaler_spec(manifest: Json) -> ScaleInSpec | ScaleOutSpec:
    raw = manifest["spec"]
    assert isinstance(raw, dict)
    spec = read_scale_in_spec(raw) if manifest["kind"] == "ScaleIn" else read_scale_out_spec(raw)
    assert isinstance(spec, ScaleInSpec | ScaleOutSpec)
    return spec


SCALERS: dict[str, tuple[Json, str]] = {
    "examples: no error": (example("scale_out.yaml"), ""),
    "selector without a name: error": (scale_in(selector={}), ".spec.selector.name is required"),
    "selector with an empty name: error": (
        scale_out(selector={"name": ""}),
        ".spec.selector.name is required",
    ),
    "names of variables: no error": (scale_in(env=[{"name": "A_1"}, {"name": "_"}, {"name": "z"}]), ""),
    **{
        f"variable named {name!r}: error": (
            scale_out(env=[{"name": "A", "value": "1"}, {"name": name, "value": "2"}]),
            f'.spec.env[1].name: invalid value "{name}": must match [A-Za-z_][A-Za-z0-9_]*',
        )
        for name in ("", "1A", "A-B", "A B", "A=B", "é", "A;reboot")
    },
    "timeout 0: error": (scale_in(timeout=0), ".spec.timeout: invalid value 0: must be at least 1"),
    "backoffLimit -1: error": (
        scale_out(backoffLimit=-1),
        ".spec.backoffLimit: invalid value -1: must be at least 0",
    ),
}


@pytest.mark.parametrize(("manifest", "want"), SCALERS.values(), ids=SCALERS.keys())
def test_scaler_that_fails_whatever_its_job(manifest: Json, want: str) -> None:
    assert scaler_error(scaler_spec(manifest)) == want
