"""The CRD of TrainingJob on a real API server and on the local one: defaults, validation, scale, columns."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from argosy.kinds.crd import crd_for
from argosy.kinds.trainingjob import (
    ATTACH_MODES,
    CLEAN_POD_POLICIES,
    REPLACEMENT_POLICIES,
    RESTART_POLICIES,
    JobCondition,
    ReplicaStatus,
    TrainingJob,
    TrainingJobCrd,
    TrainingJobStatus,
)
from tests.support.commands import KUBECTL, environment, run
from tests.support.custom_resources import CRDS, create_crd, define
from tests.support.differential import Caller, get, patch, post, put
from tests.support.field_paths import dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server
from tests.support.trainingjobs import JOBS, REMOVED, Json, example, job

STRICT = f"{JOBS}?fieldValidation=Strict"
DRY_RUN = f"{STRICT}&dryRun=All"
WORKER = "spec.etReplicaSpecs.worker"
LAUNCHER = "spec.etReplicaSpecs.launcher"


@pytest.fixture(scope="module", params=API_SERVERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    name = "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    server: Server = request.getfixturevalue(name)
    with Caller(server) as caller:
        define(caller, [TrainingJobCrd])
        yield caller


def kubectl(caller: Caller, home: Path, *words: str, code: int = 0) -> str:
    variables = environment(KUBECONFIG=str(caller.server.kubeconfig), HOME=str(home))
    done = run([str(KUBECTL), "--namespace=default", *words], variables, code=code)
    return done.stdout + done.stderr


def test_the_example_is_accepted_unchanged(caller: Caller) -> None:
    answer = caller.send(post(DRY_RUN, example("training_job.yaml")))
    assert answer.code == 201, answer.body
    assert dig(answer.body, "metadata.name") == "elastic-training"


DEFAULTS: dict[str, object] = {
    "cleanPodPolicy": "Running",
    "etReplicaSpecs.launcher.replicas": 1,
    "etReplicaSpecs.launcher.restartPolicy": None,
    "etReplicaSpecs.worker.replicas": 1,
    "etReplicaSpecs.worker.minReplicas": None,
    "etReplicaSpecs.worker.maxReplicas": None,
    "etReplicaSpecs.worker.restartPolicy": "Never",
    "launcherAttachMode": "ssh",
    "slotsPerWorker": None,
    "restartPolicy": "Never",
    "backoffLimit": 6,
    "suspend": None,
    "ttlSecondsAfterFinished": None,
    "activeDeadlineSeconds": None,
    "schedulingPolicy": None,
    "sshAuthMountPath": "/root/.ssh",
}


def minimal(name: str) -> Json:
    """A job with nothing but what is required."""
    unset = ("worker.replicas", "worker.minReplicas", "worker.maxReplicas", "launcher.replicas")
    return job(name, dict.fromkeys((*unset, "cleanPodPolicy"), REMOVED))


def test_defaults_are_stored(caller: Caller) -> None:
    """Case 10: worker.replicas omitted -> 1 worker."""
    stored = caller.send(post(STRICT, minimal("defaults"))).body
    assert {path: dig(stored, f"spec.{path}") for path in DEFAULTS} == DEFAULTS
    assert dig(stored, "status") is None


def test_a_template_keeps_all_fields(caller: Caller) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}, "odd": {"kept": 1}},
        "spec": {"containers": [{"name": "x", "odd": [1]}], "hostPID": True},
    }
    changes: Json = {"worker.template": template, "launcher.template": template}
    answer = caller.send(post(DRY_RUN, job(changes=changes)))
    assert dig(answer.body, f"{WORKER}.template") == template
    assert dig(answer.body, f"{LAUNCHER}.template") == template


def test_another_role_is_kept(caller: Caller) -> None:
    answer = caller.send(post(DRY_RUN, job(changes={"etReplicaSpecs.ps": {"replicas": 1}})))
    assert dig(answer.body, "spec.etReplicaSpecs.ps") == {"replicas": 1}


VALID: dict[str, Json] = {
    **{
        f"{path} {value!r}: accepted": job(changes={path: value})
        for path, values in {
            "cleanPodPolicy": CLEAN_POD_POLICIES,
            "restartPolicy": RESTART_POLICIES,
            "launcherAttachMode": ATTACH_MODES,
            "worker.restartPolicy": REPLACEMENT_POLICIES,
            "launcher.restartPolicy": REPLACEMENT_POLICIES,
        }.items()
        for value in values
    },
    "replicas equal to minReplicas and maxReplicas: accepted": job(
        changes={"worker.minReplicas": 2, "worker.maxReplicas": 2}
    ),
    "maxReplicas of a billion: accepted": job(changes={"worker.maxReplicas": 10**9}),
    "minReplicas without maxReplicas: accepted": job(
        changes={"worker.minReplicas": 2, "worker.maxReplicas": REMOVED}
    ),
    "name whose last worker has 63 characters: accepted": job("x" * 54),
    "all other fields: accepted": job(
        changes={
            "slotsPerWorker": 4,
            "backoffLimit": 0,
            "suspend": True,
            "ttlSecondsAfterFinished": 0,
            "activeDeadlineSeconds": 2**40,
            "sshAuthMountPath": "/home/user/.ssh",
            "schedulingPolicy": {
                "minAvailable": 3,
                "queue": "q",
                "minResources": {"cpu": 2, "memory": "4Gi"},
                "priorityClass": "high",
                "scheduleTimeoutSeconds": 60,
            },
        }
    ),
}


@pytest.mark.parametrize("body", VALID.values(), ids=VALID.keys())
def test_valid_job_is_accepted(caller: Caller, body: Json) -> None:
    answer = caller.send(post(DRY_RUN, body))
    assert answer.code == 201, answer.body


TOO_LONG = r"metadata: .*the name of its last worker, .* at most 63 characters"
INVALID: dict[str, tuple[Json, str]] = {
    "case 10, launcher without containers: rejected": (
        job(changes={"launcher.template": {"spec": {}}}),
        rf"{LAUNCHER}.template.spec.containers: Required value",
    ),
    "launcher with an empty list of containers: rejected": (
        job(changes={"launcher.template": {"spec": {"containers": []}}}),
        rf"{LAUNCHER}.template.spec.containers: .*at least 1 items",
    ),
    "worker without a template: rejected": (
        job(changes={"worker.template": REMOVED}),
        rf"{WORKER}.template: Required value",
    ),
    "no worker: rejected": (job(changes={"etReplicaSpecs.worker": REMOVED}), rf"{WORKER}: Required value"),
    "no launcher: rejected": (
        job(changes={"etReplicaSpecs.launcher": REMOVED}),
        rf"{LAUNCHER}: Required value",
    ),
    "no etReplicaSpecs: rejected": (
        job(changes={"etReplicaSpecs": REMOVED}),
        r"spec.etReplicaSpecs: Required value",
    ),
    "two launchers: rejected": (
        job(changes={"launcher.replicas": 2}),
        rf"{LAUNCHER}.replicas: .*less than or equal to 1",
    ),
    "case 10, maxReplicas below minReplicas: rejected": (
        job(changes={"worker.minReplicas": 2, "worker.maxReplicas": 1}),
        rf"{WORKER}.maxReplicas: Invalid value: .*1: must be at least minReplicas 2",
    ),
    "case 10, replicas above maxReplicas: rejected": (
        job(changes={"worker.replicas": 10}),
        rf"{WORKER}.replicas: Invalid value: .*10: must be at most maxReplicas 9",
    ),
    "case 10, replicas below minReplicas: rejected": (
        job(changes={"worker.minReplicas": 3}),
        rf"{WORKER}.replicas: Invalid value: .*2: must be at least minReplicas 3",
    ),
    "replicas unset and minReplicas 2: rejected": (
        job(changes={"worker.replicas": REMOVED, "worker.minReplicas": 2}),
        rf"{WORKER}.replicas: Invalid value: .*1: must be at least minReplicas 2",
    ),
    "replicas below a minReplicas of a million: rejected with a message without numbers": (
        job(changes={"worker.minReplicas": 10**6, "worker.maxReplicas": REMOVED}),
        rf"{WORKER}.replicas: Invalid value: .*must be at least minReplicas$",
    ),
    **{
        f"{path} 0: rejected": (
            job(changes={path: 0}),
            rf"{path.rpartition('.')[2]}: Invalid value: 0: .*greater than or equal to 1",
        )
        for path in (
            *("worker.replicas", "worker.minReplicas", "worker.maxReplicas", "launcher.replicas"),
            *("slotsPerWorker", "activeDeadlineSeconds"),
        )
    },
    **{
        f"{path} -1: rejected": (
            job(changes={path: -1}),
            rf"{path.rpartition('.')[2]}: Invalid value: -1: .*greater than or equal to 0",
        )
        for path in (
            *("backoffLimit", "ttlSecondsAfterFinished"),
            *("schedulingPolicy.minAvailable", "schedulingPolicy.scheduleTimeoutSeconds"),
        )
    },
    **{
        f"case 10, unknown {path}: rejected": (
            job(changes={path: "sometimes"}),
            rf'{path.rpartition(".")[2]}: Unsupported value: "sometimes"',
        )
        for path in (
            *("cleanPodPolicy", "restartPolicy", "launcherAttachMode"),
            *("worker.restartPolicy", "launcher.restartPolicy"),
        )
    },
    "restartPolicy of the job Always: rejected": (
        job(changes={"restartPolicy": "Always"}),
        r'spec.restartPolicy: Unsupported value: "Always"',
    ),
    "more than 32 bits: rejected": (job(changes={"worker.maxReplicas": 2**31}), r"maxReplicas"),
    "relative sshAuthMountPath: rejected": (
        job(changes={"sshAuthMountPath": ".ssh"}),
        r"spec.sshAuthMountPath: .*should match",
    ),
    "sshAuthMountPath with a colon: rejected": (
        job(changes={"sshAuthMountPath": "/a:b"}),
        r"spec.sshAuthMountPath: .*should match",
    ),
    "name that begins with a digit: rejected": (job("7b"), TOO_LONG),
    "name with a dot: rejected": (job("a.b"), TOO_LONG),
    "name whose last worker has 64 characters: rejected": (job("x" * 55), TOO_LONG),
    "name whose eleventh worker has 64 characters: rejected": (
        job("x" * 54, {"worker.replicas": 11, "worker.maxReplicas": 11}),
        TOO_LONG,
    ),
    "name whose worker 1000 has 64 characters: rejected": (
        job("x" * 52, {"worker.replicas": 1001, "worker.maxReplicas": 1001}),
        TOO_LONG,
    ),
}


@pytest.mark.parametrize(("body", "message"), INVALID.values(), ids=INVALID.keys())
def test_invalid_job_is_rejected_with_422_and_a_message(caller: Caller, body: Json, message: str) -> None:
    answer = caller.send(post(DRY_RUN, body))
    error = str(dig(answer.body, "message"))
    assert answer.code == 422, error
    assert re.search(message, error), error


def set_status(caller: Caller, name: str, status: TrainingJobStatus) -> object:
    change = {"status": msgspec.to_builtins(status)}
    answer = caller.send(patch(f"{JOBS}/{name}/status", change))
    assert answer.code == 200, answer.body
    return dig(answer.body, "status")


def test_status_is_stored_as_written_and_has_the_required_fields(caller: Caller) -> None:
    caller.send(post(JOBS, job("stated")))
    answer = caller.send(patch(f"{JOBS}/stated/status", {"status": {"phase": "Created"}}))
    assert answer.code == 422
    for name in ("conditions", "replicaStatuses", "restartCount"):
        assert f"status.{name}: Required value" in str(answer.body)
    empty = set_status(caller, "stated", TrainingJobStatus())
    assert msgspec.convert(empty, TrainingJobStatus) == TrainingJobStatus()
    full = TrainingJobStatus(
        phase="Scaling",
        conditions=[JobCondition("Created", "True", "TrainingJobCreated", "created.")],
        replica_statuses={"Launcher": ReplicaStatus(active=1), "Worker": ReplicaStatus(failed=1)},
        restart_count=1,
        current_scaler="ScaleIn:default/a",
        target_workers=["stated-worker-0", "stated-worker-2"],
        current_workers=["stated-worker-0"],
        failed_workers=["stated-worker-1"],
        replicas=1,
        selector="training-job-name=stated",
        argosy={"version": 1, "any": {"depth": [1, {"of": "things"}]}},
    )
    stored = set_status(caller, "stated", full)
    assert msgspec.convert(stored, TrainingJobStatus) == full


def test_kubectl_get_shows_name_phase_and_age(caller: Caller, tmp_path: Path) -> None:
    caller.send(post(JOBS, job("shown")))
    set_status(
        caller, "shown", TrainingJobStatus(phase="Running", replicas=1, current_scaler="ScaleIn:default/s")
    )
    header, row = kubectl(caller, tmp_path, "get", "trainingjob", "shown").splitlines()
    assert header.split() == ["NAME", "PHASE", "AGE"]
    assert row.split()[:2] == ["shown", "Running"]
    header, row = kubectl(caller, tmp_path, "get", "trainingjobs", "shown", "-o", "wide").splitlines()
    assert header.split() == ["NAME", "PHASE", "AGE", "DESIRED", "CURRENT", "MIN", "MAX", "SCALER"]
    assert row.split()[3:] == ["2", "1", "1", "9", "ScaleIn:default/s"]


def test_kubectl_scale_changes_the_workers_within_their_range(caller: Caller, tmp_path: Path) -> None:
    caller.send(post(JOBS, job("scaled")))
    selector = "training-job-name=scaled,training-job-role=worker"
    set_status(caller, "scaled", TrainingJobStatus(replicas=2, selector=selector))
    scale = caller.send(get(f"{JOBS}/scaled/scale")).body
    assert dig(scale, "spec") == {"replicas": 2}
    assert dig(scale, "status") == {"replicas": 2, "selector": selector}
    kubectl(caller, tmp_path, "scale", "trainingjob/scaled", "--replicas=3")
    refusal = kubectl(caller, tmp_path, "scale", "trainingjob/scaled", "--replicas=10", code=1)
    assert "10: must be at most maxReplicas 9" in refusal
    assert dig(caller.send(get(f"{JOBS}/scaled")).body, f"{WORKER}.replicas") == 3


def test_names_of_the_kind(caller: Caller) -> None:
    names = dig(caller.send(get(f"{CRDS}/trainingjobs.kai.alibabacloud.com")).body, "spec.names")
    assert names == {
        "kind": "TrainingJob",
        "listKind": "TrainingJobList",
        "plural": "trainingjobs",
        "singular": "trainingjob",
    }


def other_group(crd: dict[str, object], group: str) -> dict[str, object]:
    """The same CRD in another group, so that it can be changed while other tests use ours."""
    changed = copy.deepcopy(crd)
    spec = changed["spec"]
    assert isinstance(spec, dict)
    spec["group"] = group
    changed["metadata"] = {"name": f"trainingjobs.{group}"}
    return changed


OLD: dict[str, Json] = {
    "too many workers": job(changes={"worker.replicas": 12}),
    "unknown enum values": job(changes={"cleanPodPolicy": "Some", "launcherAttachMode": "telnet"}),
    "a string for a number": job(changes={"backoffLimit": "six"}),
    "no containers": job(changes={"launcher.template": {"spec": {}}}),
    "no worker": job(changes={"etReplicaSpecs.worker": REMOVED}),
    "a name that no Service may have": job("7b"),
}


def test_a_job_of_an_older_crd_can_be_read_and_gets_a_status(caller: Caller) -> None:
    """An object that our CRD would reject was stored before; the operator must be able to report that."""
    group = "older.example.com"
    ours = other_group(crd_for(TrainingJobCrd), group)
    older = copy.deepcopy(ours)
    version = dig(older, "spec.versions.0")
    assert isinstance(version, dict)
    version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    create_crd(caller, older)
    jobs = f"/apis/{group}/v1alpha1/namespaces/default/trainingjobs"
    names = {}
    for number, (what, manifest) in enumerate(OLD.items()):
        name = "7b" if "name" in what else f"old-{number}"
        names[name] = what
        body = {**manifest, "apiVersion": f"{group}/v1alpha1", "metadata": {"name": name}}
        assert caller.send(post(jobs, body)).code == 201
    path = f"{CRDS}/trainingjobs.{group}"
    resource_version = dig(caller.send(get(path)).body, "metadata.resourceVersion")
    replaced = {**ours, "metadata": {"name": f"trainingjobs.{group}", "resourceVersion": resource_version}}
    assert caller.send(put(path, replaced)).code == 200
    wrong = {**job("new", {"worker.replicas": 12}), "apiVersion": f"{group}/v1alpha1"}
    caller.send(post(f"{jobs}?dryRun=All", wrong, until_code=422))
    for name, what in names.items():
        stored = msgspec.convert(caller.send(get(f"{jobs}/{name}")).body, TrainingJob)
        assert stored.spec, what
        answer = caller.send(
            patch(f"{jobs}/{name}/status", {"status": msgspec.to_builtins(TrainingJobStatus(phase="Failed"))})
        )
        assert answer.code == 200, (what, answer.body)
        assert dig(answer.body, "status.phase") == "Failed"
