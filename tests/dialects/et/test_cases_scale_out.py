"""Acceptance cases 25 to 30 of et-operator's specification: workers are added to a running job."""

import pytest
from msgspec.structs import replace

from argosy.kinds.scalers import ScaleOut
from argosy.plan.actions import Exec, ExecResult, ExecStatus
from argosy.workload.hosts import SETTLE_SECONDS
from tests.support.et_simulator import LAUNCHER, EtSimulator, J, done, running_job, worker, workers
from tests.support.trainingjobs import REMOVED

W0, W1, W2, W3 = workers(0, 1, 2, 3)


def added(job: EtSimulator, name: str = "out") -> list[str]:
    scaler = job.scalers[name]
    assert isinstance(scaler, ScaleOut)
    return scaler.status.add_pods


def pod_labels(job: EtSimulator, name: str) -> dict[str, str]:
    metadata = job.cluster.rendered[name]["metadata"]
    assert isinstance(metadata, dict)
    labels: dict[str, str] = metadata["labels"]
    return labels


def test_case_25_a_scale_out_adds_its_workers_to_the_list_when_all_of_them_run() -> None:
    job = running_job()
    kept = job.cluster.uids([W0, W1, LAUNCHER])
    job.cluster.pending = {W3}
    job.scale_out("out")
    job.run(5)
    assert (job.status.phase, job.status.current_scaler) == ("Scaling", "ScaleOut:default/out")
    assert job.conditions()[-1] == "Scaling"
    assert job.condition("Scaling")[1] == "ScalingStart"
    assert job.cluster.workers() == [W0, W1, W2, W3]
    assert job.cluster.names("Service") == [W0, W1, W2, W3]
    for name in (W2, W3):
        assert pod_labels(job, name)["scaleout-name"] == "out"
        assert pod_labels(job, name)["replica-index"] == name[-1]
        assert job.cluster.labels("Service", name)["scaleout-name"] == "out"
    assert "scaleout-name" not in pod_labels(job, W0)
    assert "scaleout-name" not in job.cluster.labels("Service", W0)
    assert (added(job), job.scalers["out"].status.phase) == ([W2, W3], "Scaling")
    assert job.conditions("out") == ["Created", "Scaling"]
    assert job.hosts == [W0, W1]
    assert job.status.target_workers == [W0, W1]
    job.cluster.pending = set()
    job.run(5)
    assert job.host_lists == [[W0, W1], [W0, W1, W2, W3]]
    assert job.scalers["out"].status.phase == "ScaleSucceeded"
    assert job.conditions("out") == ["Created", "ScriptExecuted", "ScaleSucceeded"]
    assert job.condition("ScaleSucceeded", "out")[1:] == (
        "ScalingOutSucceeded",
        "ScaleOut:default/out has Succeeded",
    )
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")
    assert job.condition("Scaling")[0] == "False"
    assert job.conditions()[-1] == "ScaleSucceeded"
    assert job.status.target_workers == [W0, W1, W2, W3]
    assert job.cluster.uids([W0, W1, LAUNCHER]) == kept
    assert job.cluster.labels("Service", W2)["scaleout-name"] == "out"
    assert [event.reason for event in job.scaler_events] == ["ScalingOutSucceeded"]


def test_case_25_nothing_is_created_before_the_scale_out_shows_its_names() -> None:
    job = running_job()
    job.scale_out("out")
    job.reconcile_scaler("out")
    for _ in range(5):
        job.reconcile()
        job.cluster.tick(1)
    assert (job.status.phase, job.cluster.workers()) == ("Scaling", [W0, W1])
    job.reconcile_scaler("out")
    assert added(job) == [W2, W3]
    job.run(2)
    assert job.cluster.workers() == [W0, W1, W2, W3]


def test_case_25_the_counts_of_a_scale_out_are_those_of_its_own_pods() -> None:
    job = running_job()
    job.cluster.pending = {W3}
    job.scale_out("out")
    job.run(6)
    job.cluster.fail(W2)
    job.run(2)
    counts = job.scalers["out"].status.replica_statuses["Worker"]
    assert (counts.active, counts.succeeded, counts.failed) == (1, 0, 1)


def test_case_26_the_name_of_a_worker_that_was_scaled_in_is_used_again() -> None:
    job = running_job()
    job.scale_in("in")
    job.run(10)
    assert job.status.target_workers == [W0]
    job.scale_out("out")
    job.run(12)
    assert added(job) == [W1, W2]
    assert job.hosts == [W0, W1, W2]


def test_case_26_a_name_whose_pod_still_terminates_is_skipped() -> None:
    job = running_job()
    job.cluster.stuck = {W2}
    job.cluster.pending = {W2}
    job.scale_out("first", toAdd={"count": 1}, timeout=3)
    job.run(10)
    assert job.scalers["first"].status.phase == "ScaleFailed"
    job.scale_out("second", toAdd={"count": 1})
    job.run(10)
    assert added(job, "second") == [W3]


@pytest.mark.parametrize(("timeout", "seconds"), [(REMOVED, 60), (10, 10)])
def test_case_27_a_pod_that_is_pending_too_long_fails_the_scale_out(timeout: object, seconds: int) -> None:
    job = running_job()
    job.cluster.pending = {W3}
    job.scale_out("out")
    spec = {key: value for key, value in job.scalers["out"].spec.items() if key != "timeout"}
    if timeout is not REMOVED:
        spec["timeout"] = timeout
    job.scalers["out"] = ScaleOut(job.scalers["out"].metadata, spec)
    job.run(seconds - 1)
    assert job.status.phase == "Scaling"
    job.run(5)
    assert job.scalers["out"].status.phase == "ScaleFailed"
    status, reason, message = job.condition("ScaleFailed", "out")
    assert (status, reason) == ("True", "ScalingOutFailed")
    assert "scaleout job default/out execution timeout" in message
    assert W3 in message
    assert W2 not in message
    assert job.cluster.workers() == [W0, W1]
    assert job.cluster.names("Service") == [W0, W1]
    assert job.host_lists == [[W0, W1]]
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")
    assert job.conditions()[-1] == "ScaleFailed"
    assert job.status.target_workers == [W0, W1]


def test_case_27_a_pod_that_cannot_be_created_fails_the_scale_out() -> None:
    job = running_job()
    job.cluster.quota = lambda name: "exceeded quota" if name == W3 else ""
    job.scale_out("out", timeout=10)
    job.run(20)
    assert job.scalers["out"].status.phase == "ScaleFailed"
    assert job.cluster.workers() == [W0, W1]
    assert job.reasons("Warning").count("PodCreateFailed") == 1
    assert job.condition("WorkersCreated")[0] == "True", "the start was long ago"


def test_case_27_a_pod_of_a_scale_out_that_vanishes_is_created_again() -> None:
    job = running_job()
    job.cluster.pending = {W3}
    job.scale_out("out")
    job.run(6)
    job.cluster.lose(W2)
    job.run(3)
    assert W2 in job.pods
    job.cluster.pending = set()
    job.run(5)
    assert job.hosts == [W0, W1, W2, W3]


def test_case_28_a_scale_out_above_max_replicas_fails_and_creates_no_pods() -> None:
    job = running_job({"worker.maxReplicas": 3})
    job.scale_out("out")
    job.run(5)
    status, reason, message = job.condition("ScaleFailed", "out")
    assert (status, reason) == ("True", "ScalingOutFailed")
    assert "2 + 2" in message
    assert "maxReplicas 3" in message
    assert len(job.cluster.created) == 3
    assert job.status.phase == "Running"
    assert job.conditions()[-1] == "ScaleFailed"


@pytest.mark.parametrize(
    ("to_add", "error"),
    [
        (None, ".spec.toAdd.count shouldn't be empty"),
        ({}, ".spec.toAdd.count shouldn't be empty"),
        ({"count": 0}, ".spec.toAdd.count shouldn be greater than 0"),
        ({"count": -1}, ".spec.toAdd.count shouldn be greater than 0"),
    ],
)
def test_case_28_a_scale_out_without_a_count_fails(to_add: object, error: str) -> None:
    job = running_job()
    job.scale_out("out", toAdd=to_add)
    job.run(5)
    assert job.condition("ScaleFailed", "out")[2] == error
    assert len(job.cluster.created) == 3


SCRIPT = {"script": "/scale.sh", "env": [{"name": "A", "value": "1"}]}


def scripted(*codes: int | ExecStatus) -> tuple[EtSimulator, list[Exec]]:
    """Return a running job whose scripts end like this, and the calls of scripts."""
    answers, calls = iter(codes), list[Exec]()

    def answer(call: Exec) -> ExecResult:
        if not call.key.startswith("script/"):
            return done(call)
        calls.append(call)
        code = next(answers)
        return ExecResult(call.key, code) if isinstance(code, ExecStatus) else done(call, code)

    return running_job(answer=answer), calls


def test_case_29_a_script_gets_its_environment_and_the_added_pods() -> None:
    job, calls = scripted(0)
    values = ["1", "a b", 'it\'s "$HOME"', "two\nlines", "`x`; exit 1"]
    env = [{"name": f"V{index}", "value": value} for index, value in enumerate(values)]
    job.scale_out("out", script="/scale.sh", env=env)
    job.run(12)
    [call] = calls
    assert (call.pod, call.container) == (LAUNCHER, "elastic-training")
    path, hosts, *variables = call.command[-2 - len(env) :]
    assert (path, hosts) == ("/scale.sh", f"{W2}:1,{W3}:1")
    assert variables == [f"V{index}={value}" for index, value in enumerate(values)]
    assert job.hosts == [W0, W1, W2, W3]
    assert job.scalers["out"].status.phase == "ScaleSucceeded"


@pytest.mark.parametrize("end", [3, ExecStatus.TIMED_OUT])
def test_case_29_a_script_that_fails_undoes_the_scale_out(end: int | ExecStatus) -> None:
    job, calls = scripted(end)
    job.scale_out("out", **SCRIPT)
    job.run(12)
    assert len(calls) == 1
    assert job.scalers["out"].status.phase == "ScaleFailed"
    assert "/scale.sh" in job.condition("ScaleFailed", "out")[2]
    assert job.cluster.workers() == [W0, W1]
    assert job.host_lists == [[W0, W1]]
    assert job.status.phase == "Running"


def test_case_29_a_script_that_fails_twice_may_be_tried_three_times() -> None:
    job, calls = scripted(1, 2, 0)
    job.scale_out("out", **SCRIPT, backoffLimit=2)
    job.run(15)
    assert len({call.key for call in calls}) == 3
    assert job.scalers["out"].status.phase == "ScaleSucceeded"


def test_case_29_a_script_in_a_launcher_that_cannot_be_reached_fails_in_the_end() -> None:
    job, calls = scripted(*[ExecStatus.NOT_REACHABLE] * 1000)
    job.scale_out("out", **SCRIPT, timeout=20)
    job.run(15)
    assert job.status.phase == "Scaling"
    assert len(calls) > 1
    job.run(30)
    assert job.scalers["out"].status.phase == "ScaleFailed"


def test_case_29_an_invalid_name_of_a_variable_fails_the_scale_out() -> None:
    job = running_job()
    job.scale_out("out", script="/scale.sh", env=[{"name": "a-b", "value": "1"}])
    job.run(3)
    assert ".spec.env[0].name" in job.condition("ScaleFailed", "out")[2]
    assert len(job.cluster.created) == 3


def test_case_30_a_scale_out_that_is_deleted_is_undone_and_the_next_succeeds() -> None:
    job = running_job()
    job.cluster.pending = {W3}
    job.scale_out("out")
    job.run(5)
    assert job.cluster.workers() == [W0, W1, W2, W3]
    del job.scalers["out"]
    job.run(2)
    assert job.cluster.workers() == [W0, W1]
    assert job.cluster.names("Service") == [W0, W1]
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")
    assert job.conditions()[-1] == "ScaleFailed"
    job.cluster.pending = set()
    job.scale_out("next")
    job.run(12)
    assert job.hosts == [W0, W1, W2, W3]
    assert job.conditions()[-1] == "ScaleSucceeded"
    assert job.condition("ScaleFailed")[0] == "False"


def test_a_long_name_of_a_scale_out_is_no_label() -> None:
    job = running_job()
    job.scale_out("x" * 100)
    job.run(12)
    assert job.hosts == [W0, W1, W2, W3]
    assert "scaleout-name" not in pod_labels(job, W2)


def test_a_scale_out_is_executed_while_replacements_back_off() -> None:
    job = running_job({"worker.restartPolicy": "OnFailure"})
    job.cluster.fail(W1)
    job.run(3)
    job.cluster.fail(worker(2))
    job.run(2)
    assert worker(3) not in job.pods, "delayed"
    job.scale_out("out", toAdd={"count": 1}, timeout=8)
    job.run(8)
    assert job.scalers["out"].status.phase == "ScaleSucceeded"
    assert f"{J}-worker-4" in job.hosts


def test_a_scale_out_joins_the_list_when_the_last_change_of_it_was_taken_up() -> None:
    job = running_job()
    job.cluster.pending = {W2, W3}
    job.scale_out("out")
    job.run(6)
    job.cluster.pending = set()
    job.cluster.tick(1)
    job.cluster.fail(W1)
    job.reconcile()
    changed_at = job.now
    assert job.hosts == [W0]
    while job.hosts == [W0]:
        job.run(1)
    assert (job.now - changed_at).total_seconds() >= SETTLE_SECONDS
    assert job.hosts == [W0, W2, W3]


@pytest.mark.parametrize("shown", [[f"{J}-worker-999999999", W2], ["x", "y"], [W3], [W2, W2, W3]])
def test_a_status_that_shows_something_else_than_was_asked_for_is_not_followed(shown: list[str]) -> None:
    job = running_job()
    job.scale_out("out")
    job.reconcile_scaler("out")
    scaler = job.scalers["out"]
    assert isinstance(scaler, ScaleOut)
    job.scalers["out"] = replace(scaler, status=replace(scaler.status, add_pods=shown))
    job.run(12)
    assert job.hosts == [W0, W1, W2, W3]
    assert added(job) == [W2, W3]
