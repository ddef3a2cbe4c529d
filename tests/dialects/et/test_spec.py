import pytest

from argosy.dialects.et import spec
from argosy.dialects.et.spec import MAX_WORKERS, read_job_spec, read_scale_in_spec, read_scale_out_spec
from argosy.kinds.scalers import EnvVar, ScaleInSpec, ScaleOutSpec, ScalerSelector, ToAdd, ToDelete
from argosy.kinds.trainingjob import TrainingJobSpec
from argosy.workload.model import Problem
from tests.support.trainingjobs import REMOVED, Json, example, job, scale_in, scale_out


def spec_of(manifest: Json) -> Json:
    raw = manifest["spec"]
    assert isinstance(raw, dict)
    return raw


def read(changes: Json | None = None) -> TrainingJobSpec:
    result = read_job_spec(spec_of(job(changes=changes)))
    assert isinstance(result, TrainingJobSpec), str(result)
    return result


def test_job_of_the_older_crd_is_read_with_all_defaults() -> None:
    """Such a job has no launcherAttachMode, restartPolicy and backoffLimit."""
    unset = ("worker.replicas", "worker.minReplicas", "worker.maxReplicas", "launcher.replicas")
    old = read(dict.fromkeys((*unset, "cleanPodPolicy"), REMOVED))
    assert (old.launcher_attach_mode, old.restart_policy, old.backoff_limit) == ("ssh", "Never", 6)
    assert (old.clean_pod_policy, old.suspend, old.ssh_auth_mount_path) == ("Running", False, "/root/.ssh")
    launcher, worker = old.et_replica_specs.launcher, old.et_replica_specs.worker
    assert (launcher.replicas, launcher.restart_policy) == (1, None)
    assert (worker.replicas, worker.restart_policy) == (1, "Never"), "case 10"
    assert (spec.min_replicas(old), spec.max_replicas(old)) == (1, MAX_WORKERS)
    assert (old.ttl_seconds_after_finished, old.active_deadline_seconds, old.scheduling_policy) == (None,) * 3


def test_fields_of_other_versions_are_ignored() -> None:
    assert read({"unheardOf": 1, "worker.unheardOf": {}, "etReplicaSpecs.ps": {}}) == read()


UNREADABLE: dict[str, tuple[Json, str]] = {
    "empty spec: the missing field": ({}, "spec.etReplicaSpecs: required"),
    "no worker: the missing field": (
        spec_of(job(changes={"etReplicaSpecs.worker": REMOVED})),
        "spec.etReplicaSpecs.worker: required",
    ),
    "launcher without a template: the missing field": (
        spec_of(job(changes={"launcher.template": REMOVED})),
        "spec.etReplicaSpecs.launcher.template: required",
    ),
    "text for a number: its path": (
        spec_of(job(changes={"worker.replicas": "two"})),
        "spec.etReplicaSpecs.worker.replicas: expected `int`, got `str`",
    ),
    "list for an object: its path": (
        {"etReplicaSpecs": []},
        "spec.etReplicaSpecs: expected `object`, got `array`",
    ),
}


@pytest.mark.parametrize(("raw", "want"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_spec_that_cannot_be_read_is_a_problem_with_a_path(raw: Json, want: str) -> None:
    result = read_job_spec(raw)
    assert isinstance(result, Problem)
    assert str(result) == want


def container(**resources: object) -> Json:
    return {"worker.template": {"spec": {"containers": [{"name": "a", "resources": resources}]}}}


SLOTS: dict[str, tuple[Json, int]] = {
    "slotsPerWorker and a GPU limit: slotsPerWorker": (
        {**container(limits={"nvidia.com/gpu": 8}), "slotsPerWorker": 4},
        4,
    ),
    "GPU limit as a number: the limit": (container(limits={"nvidia.com/gpu": 8}), 8),
    "GPU limit as a text: the limit": (container(limits={"nvidia.com/gpu": "8"}), 8),
    "GPU request without a limit: 1": (container(requests={"nvidia.com/gpu": 8}), 1),
    "GPU limit 0: 1": (container(limits={"nvidia.com/gpu": 0}), 1),
    "GPU limit that is no quantity: 1": (container(limits={"nvidia.com/gpu": "many"}), 1),
    "GPU limit with a huge exponent: 1": (container(limits={"nvidia.com/gpu": "1e99999"}), 1),
    "limits that are a list: 1": (container(limits=["nvidia.com/gpu"]), 1),
    "no resources: 1": ({"worker.template": {"spec": {"containers": [{"name": "a"}]}}}, 1),
    "GPU limit of the second container: 1": (
        {
            "worker.template": {
                "spec": {
                    "containers": [
                        {"name": "a"},
                        {"name": "b", "resources": {"limits": {"nvidia.com/gpu": 8}}},
                    ]
                }
            }
        },
        1,
    ),
    "no containers: 1": ({"worker.template": {"spec": {"containers": []}}}, 1),
}


@pytest.mark.parametrize(("changes", "want"), SLOTS.values(), ids=SLOTS.keys())
def test_slots_per_worker(changes: Json, want: int) -> None:
    assert spec.slots_per_worker(read(changes)) == want


RANGES: dict[str, tuple[Json, tuple[int, int]]] = {
    "minReplicas and maxReplicas: both": ({}, (1, 9)),
    "no minReplicas: 1, not replicas": ({"worker.minReplicas": REMOVED, "worker.replicas": 5}, (1, 9)),
    "no maxReplicas: what fits into a status": ({"worker.maxReplicas": REMOVED}, (1, MAX_WORKERS)),
    "maxReplicas of a billion: what fits into a status": ({"worker.maxReplicas": 10**9}, (1, MAX_WORKERS)),
}


@pytest.mark.parametrize(("changes", "want"), RANGES.values(), ids=RANGES.keys())
def test_range_of_the_number_of_workers(changes: Json, want: tuple[int, int]) -> None:
    result = read(changes)
    assert (spec.min_replicas(result), spec.max_replicas(result)) == want


def test_scale_in_is_read_with_its_defaults() -> None:
    selector = ScalerSelector("elastic-training")
    read_count = read_scale_in_spec(spec_of(example("scale_in_count.yaml")))
    assert read_count == ScaleInSpec(selector, ToDelete(count=1))
    read_names = read_scale_in_spec(spec_of(example("scale_in_pod.yaml")))
    assert read_names == ScaleInSpec(selector, ToDelete(pod_names=["elastic-training-worker-1"]))
    assert isinstance(read_count, ScaleInSpec)
    assert spec.drain_timeout_seconds(read_count) == 600
    assert spec.script_timeout_seconds(read_count) == 60
    assert read_scale_in_spec({}) == ScaleInSpec()


def test_scale_out_is_read_with_its_defaults() -> None:
    result = read_scale_out_spec(spec_of(example("scale_out.yaml")))
    assert result == ScaleOutSpec(ScalerSelector("elastic-training"), ToAdd(2), timeout=300)
    assert isinstance(result, ScaleOutSpec)
    assert spec.start_timeout_seconds(result) == 300
    unset = read_scale_out_spec({})
    assert unset == ScaleOutSpec()
    assert isinstance(unset, ScaleOutSpec)
    assert spec.start_timeout_seconds(unset) == 60
    assert spec.script_timeout_seconds(unset) == 60


def test_environment_of_a_script_is_read_literally() -> None:
    value = "$HOME 'a' \"b\"\n\\"
    result = read_scale_in_spec(spec_of(scale_in(env=[{"name": "A", "value": value}], timeout=10)))
    assert isinstance(result, ScaleInSpec)
    assert result.env == [EnvVar("A", value)]
    assert (spec.drain_timeout_seconds(result), spec.script_timeout_seconds(result)) == (10, 10)


def test_scaler_that_cannot_be_read_is_a_problem_with_a_path() -> None:
    wrong_count = read_scale_out_spec(spec_of(scale_out(toAdd={"count": "two"})))
    assert str(wrong_count) == "spec.toAdd.count: expected `int | null`, got `str`"
    wrong_name = read_scale_in_spec(spec_of(scale_in(toDelete={"podNames": ["a", 1]})))
    assert str(wrong_name) == "spec.toDelete.podNames[1]: expected `str`, got `int`"
