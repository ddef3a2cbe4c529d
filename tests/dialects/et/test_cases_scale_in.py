"""Acceptance cases 31 to 38 of et-operator's specification: workers are removed from a running job."""

import pytest

from argosy.kinds.labels import POD_DELETION_COST
from argosy.kinds.scalers import ScaleIn
from argosy.plan.actions import Exec, ExecResult
from tests.support.et_simulator import LAUNCHER, EtSimulator, done, running_job, worker, workers

W0, W1, W2 = workers(0, 1, 2)


class Launcher:
    """Answers the calls into pods; the launcher has processes on these hosts."""

    def __init__(self, *attached: str) -> None:
        self.attached = set(attached)
        self.script_code = 0

    def __call__(self, call: Exec) -> ExecResult:
        if call.key.startswith("script/"):
            return done(call, self.script_code)
        asked = set(call.command) if call.key.startswith("drain/") else set()
        return done(call, stdout="\n".join(sorted(self.attached & asked)).encode())


def three_workers(launcher: Launcher, **changes: object) -> EtSimulator:
    return running_job({"worker.replicas": 3, **changes}, answer=launcher)


def removed(job: EtSimulator, name: str = "in") -> list[str]:
    scaler = job.scalers[name]
    assert isinstance(scaler, ScaleIn)
    return scaler.status.to_delete_pods


def test_case_31_a_worker_leaves_the_list_first_and_is_deleted_when_the_launcher_has_left_it() -> None:
    launcher = Launcher(W2)
    job = three_workers(launcher)
    kept = job.cluster.uids([W0, W1, LAUNCHER])
    job.scale_in("in")
    job.run(8)
    assert removed(job) == [W2]
    assert (job.status.phase, job.status.current_scaler) == ("Scaling", "ScaleIn:default/in")
    assert job.hosts == [W0, W1]
    assert W2 in job.pods
    assert job.cluster.names("Service") == [W0, W1, W2]
    assert job.status.target_workers == [W0, W1, W2]
    assert job.conditions("in") == ["Created", "Scaling", "ScriptExecuted"]
    launcher.attached.clear()
    job.run(5)
    assert job.cluster.workers() == [W0, W1]
    assert job.cluster.names("Service") == [W0, W1]
    assert (job.status.target_workers, job.status.current_workers) == ([W0, W1], [W0, W1])
    assert job.conditions("in") == ["Created", "ScriptExecuted", "ScaleSucceeded"]
    assert job.condition("ScaleSucceeded", "in")[1:] == (
        "ScalingInSucceeded",
        "ScaleIn:default/in has Succeeded",
    )
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")
    assert job.conditions()[-1] == "ScaleSucceeded"
    assert job.cluster.uids([W0, W1, LAUNCHER]) == kept
    assert job.host_lists == [[W0, W1, W2], [W0, W1]]
    assert job.event_messages("WorkerDeleted") == [f"{W2} removed by ScaleIn:default/in"]


def test_case_31_the_scale_in_succeeds_only_when_its_pods_are_gone() -> None:
    job = three_workers(Launcher())
    job.cluster.stuck = {W2}
    job.scale_in("in")
    job.run(10)
    assert job.status.phase == "Scaling"
    assert job.status.target_workers == [W0, W1]
    job.cluster.stuck = set()
    job.run(3)
    assert job.scalers["in"].status.phase == "ScaleSucceeded"


def test_case_31_each_worker_is_deleted_as_soon_as_it_is_drained() -> None:
    launcher = Launcher(W1, W2)
    job = three_workers(launcher)
    job.scale_in("in", toDelete={"count": 2})
    job.run(6)
    launcher.attached = {W2}
    job.run(3)
    assert job.cluster.workers() == [W0, W2]
    assert job.status.target_workers == [W0, W2]
    assert job.status.phase == "Scaling"


def test_case_31_worker_1_is_not_worker_10() -> None:
    launcher = Launcher(worker(10))
    job = running_job({"worker.replicas": 11, "worker.maxReplicas": 20}, answer=launcher)
    job.scale_in("in", toDelete={"podNames": [W1, worker(10)]})
    job.run(8)
    assert job.hosts == [worker(index) for index in range(11) if index not in (1, 10)]
    assert W1 not in job.pods
    assert worker(10) in job.pods
    [call] = {call.command for call in job.called("drain/") if W1 in call.command}
    assert call[-2:] == (W1, worker(10))


def test_case_32_named_workers_are_removed_and_no_others() -> None:
    job = three_workers(Launcher())
    job.scale_in("in", toDelete={"podNames": [W1, W1]})
    job.run(10)
    assert removed(job) == [W1]
    assert job.cluster.workers() == [W0, W2]
    assert job.hosts == [W0, W2]


def test_case_32_a_lower_deletion_cost_is_removed_first() -> None:
    job = three_workers(Launcher())
    job.cluster.change(W0, deletion_cost=-5)
    job.scale_in("in")
    job.run(10)
    assert removed(job) == [W0], POD_DELETION_COST


PREFIX = "ScaleIn:default/in get to delete workers name failed, error: "
BOTH = ".spec.toDelete.count or .spec.toDelete.podNames, only one of them should be set"
INVALID: dict[str, tuple[object, str]] = {
    "33 count equal to the number of workers": (
        {"count": 3},
        ".spec.toDelete.count should be less than current replicas 3",
    ),
    "33 count above the number of workers": (
        {"count": 30},
        ".spec.toDelete.count should be less than current replicas 3",
    ),
    "34 neither count nor names": ({}, BOTH),
    "34 no toDelete": (None, BOTH),
    "34 count and names": ({"count": 1, "podNames": [W1]}, BOTH),
    "34 negative count": ({"count": -1}, BOTH),
    "34 a name that is no worker's": ({"podNames": [W1, "other"]}, "no such worker: other"),
    "34 the launcher": ({"podNames": [LAUNCHER]}, f"no such worker: {LAUNCHER}"),
    "35 count leaves fewer than minReplicas": (
        {"count": 2},
        "only 1 worker would be left; must be at least minReplicas 2",
    ),
    "35 all names": (
        {"podNames": [W0, W1, W2]},
        "only 0 workers would be left; must be at least minReplicas 2",
    ),
}


def check_nothing_removed(to_delete: object, error: str) -> None:
    job = three_workers(Launcher(), **{"worker.minReplicas": 2})
    job.scale_in("in", toDelete=to_delete)
    job.run(6)
    assert job.scalers["in"].status.phase == "ScaleFailed"
    assert job.condition("ScaleFailed", "in")[1:] == ("ScalingInFailed", PREFIX + error)
    assert removed(job) == []
    assert job.cluster.deleted == []
    assert job.host_lists == [[W0, W1, W2]]
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")
    assert job.conditions()[-1] == "ScaleFailed"
    job.scale_in("next")
    job.run(10)
    assert job.cluster.workers() == [W0, W1], "the next one succeeds"


def invalid(number: str) -> dict[str, tuple[object, str]]:
    return {title: case for title, case in INVALID.items() if title.startswith(number)}


@pytest.mark.parametrize(("to_delete", "error"), invalid("33").values(), ids=invalid("33"))
def test_case_33_a_count_of_all_workers_fails_and_nothing_is_deleted(to_delete: object, error: str) -> None:
    check_nothing_removed(to_delete, error)


@pytest.mark.parametrize(("to_delete", "error"), invalid("34").values(), ids=invalid("34"))
def test_case_34_a_scale_in_without_a_clear_choice_fails(to_delete: object, error: str) -> None:
    check_nothing_removed(to_delete, error)


@pytest.mark.parametrize(("to_delete", "error"), invalid("35").values(), ids=invalid("35"))
def test_case_35_fewer_workers_than_min_replicas_are_never_left(to_delete: object, error: str) -> None:
    check_nothing_removed(to_delete, error)


def test_case_36_a_process_that_never_ends_does_not_keep_its_worker_longer_than_the_timeout() -> None:
    job = three_workers(Launcher(W2))
    job.scale_in("in", timeout=10)
    job.run(11)
    assert W2 in job.pods
    job.run(8)
    assert W2 not in job.pods
    assert job.event_messages("DrainTimeout") == [
        f"{W2} removed before the launcher has left them: drain timeout"
    ]
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert "drain timeout" in job.condition("ScaleSucceeded", "in")[2]
    assert job.status.phase == "Running"


def test_case_36_only_workers_that_are_still_used_are_reported() -> None:
    job = three_workers(Launcher(W2))
    job.scale_in("in", toDelete={"count": 2}, timeout=10)
    job.run(20)
    assert job.cluster.workers() == [W0]
    [message] = job.event_messages("DrainTimeout")
    assert W2 in message
    assert W1 not in message


def test_case_36_without_a_timeout_the_wait_is_ten_minutes() -> None:
    job = three_workers(Launcher(W2))
    job.scale_in("in")
    job.run(2)
    job.run(110, seconds=5)
    assert W2 in job.pods
    job.run(12, seconds=5)
    assert W2 not in job.pods


def test_case_36_a_launcher_that_is_gone_has_left_its_workers() -> None:
    launcher = Launcher(W2)
    job = three_workers(launcher, **{"launcher.restartPolicy": "Always"})
    job.scale_in("in")
    job.run(6)
    job.cluster.delete(LAUNCHER)
    job.run(4)
    assert W2 not in job.pods
    assert job.hosts == [W0, W1]


def test_case_37_with_a_script_no_process_is_looked_for_and_pods_are_deleted_after_it() -> None:
    job = three_workers(Launcher(W2))
    job.scale_in("in", script="/scale.sh")
    job.run(8)
    [call] = job.called("script/")
    assert call.command[-2:] == ("/scale.sh", f"{W2}:1")
    assert job.called("drain/") == []
    assert job.cluster.workers() == [W0, W1]
    assert job.hosts == [W0, W1]
    assert job.scalers["in"].status.phase == "ScaleSucceeded"


def test_case_37_a_script_that_fails_deletes_nothing() -> None:
    launcher = Launcher()
    launcher.script_code = 1
    job = three_workers(launcher)
    job.scale_in("in", script="/scale.sh")
    job.run(10)
    assert job.scalers["in"].status.phase == "ScaleFailed"
    assert job.cluster.deleted == []
    assert job.host_lists == [[W0, W1, W2]]


def test_case_38_every_deletion_leaves_the_pod_its_own_grace_period() -> None:
    job = three_workers(Launcher(), restartPolicy="OnFailure", cleanPodPolicy="All")
    job.scale_in("in")
    job.run(10)
    job.cluster.pending = {W2}
    job.scale_out("out", toAdd={"count": 1}, timeout=5)
    job.run(15)
    job.cluster.pending = set()
    job.cluster.fail(LAUNCHER)
    job.run(15)
    job.edit({"suspend": True})
    job.run(3)
    job.edit({"suspend": False})
    job.run(10)
    job.cluster.succeed(LAUNCHER)
    job.run(3)
    assert job.status.phase == "Succeeded"
    assert len(job.cluster.deleted) > 10
    assert {action.grace_period_seconds for action in job.cluster.deleted} == {None}


def test_a_scale_in_that_is_deleted_half_way_lists_the_rest_again() -> None:
    launcher = Launcher(W1, W2)
    job = three_workers(launcher)
    job.scale_in("in", toDelete={"count": 2})
    job.run(5)
    launcher.attached = {W2}
    job.run(3)
    assert job.cluster.workers() == [W0, W2]
    del job.scalers["in"]
    job.run(10)
    assert (job.hosts, job.status.target_workers) == ([W0, W2], [W0, W2])
    assert job.status.phase == "Running"
    assert job.cluster.created.count(W1) == 1, "deleted workers are not replaced"


def test_the_last_worker_in_the_list_is_removed_only_when_another_one_is_listed() -> None:
    """Two workers are live, but only one of them runs: without it the training would end."""
    job = running_job({"worker.restartPolicy": "Always"}, answer=Launcher())
    job.cluster.pending = {W2}
    job.cluster.fail(W1)
    job.run(3)
    assert job.hosts == [W0]
    job.scale_in("in", toDelete={"podNames": [W0]}, timeout=30)
    job.run(10)
    assert job.status.phase == "Scaling"
    assert job.hosts == [W0]
    job.cluster.pending = set()
    job.run(20)
    assert job.hosts == [W2]
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert job.host_lists == [[W0, W1], [W0], [W0, W2], [W2]]


def test_a_scale_in_that_would_leave_no_host_in_the_list_fails_in_the_end() -> None:
    job = running_job({"worker.restartPolicy": "Always"}, answer=Launcher())
    job.cluster.pending = {W2}
    job.cluster.fail(W1)
    job.run(3)
    job.scale_in("in", toDelete={"podNames": [W0]}, timeout=10)
    job.run(15)
    assert job.scalers["in"].status.phase == "ScaleFailed"
    assert job.hosts == [W0]
    assert job.cluster.deleted == []


def test_a_job_that_restarts_while_a_worker_is_drained_has_all_its_workers_again() -> None:
    job = three_workers(Launcher(W0), restartPolicy="OnFailure")
    job.scale_in("in", toDelete={"podNames": [W0]})
    job.run(8)
    assert job.hosts == [W1, W2]
    job.cluster.fail(LAUNCHER)
    job.run(15)
    assert job.scalers["in"].status.phase == "ScaleFailed"
    assert (job.status.phase, job.hosts) == ("Running", [W0, W1, W2])
