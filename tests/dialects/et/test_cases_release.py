"""Acceptance case 45 of et-operator's specification: workers leave before their node is released."""

from collections.abc import Callable

import pytest

from argosy.plan.actions import Exec, ExecResult
from argosy.workload.announcements import NoticeCause
from tests.support.et_simulator import EtSimulator, J, done, running_job, worker, workers

W0, W1, W2, W3 = workers(0, 1, 2, 3)


def spread(name: str) -> str:
    """Return the node of a pod: each worker has one of its own, and so has the launcher."""
    return f"node-{name.removeprefix(f'{J}-')}"


def job_on_nodes(changes: dict[str, object] | None = None) -> EtSimulator:
    """Return a running job with each worker on a node of its own, `node-worker-0` and so on."""
    job = EtSimulator(changes)
    job.cluster.node_of = spread
    job.run(8)
    assert job.status.phase == "Running", job.status
    return job


def announce_node(job: EtSimulator) -> None:
    job.cluster.announce("node-worker-1", 120)


def disrupt_pod(job: EtSimulator) -> None:
    job.cluster.disrupt(W1)


SIGNALS = {"release taint on its node": announce_node, "DisruptionTarget": disrupt_pod}


@pytest.mark.parametrize("signal", SIGNALS.values(), ids=SIGNALS.keys())
def test_case_45_a_worker_is_drained_and_removed_before_its_node_is_released(
    signal: Callable[[EtSimulator], None],
) -> None:
    job = job_on_nodes()
    start = job.now
    job.cluster.pending = {W2}
    signal(job)
    job.run(1)
    assert job.status.current_scaler == f"ScaleIn:default/{J}-release-node-worker-1"
    assert W2 in job.cluster.created, "a replacement is created at once"
    job.run(12)
    assert (job.now - start).total_seconds() < 30
    assert [action.name for action in job.cluster.deleted] == [W1]
    assert job.called("drain/"), "the launcher was asked whether it has left the worker"
    assert W1 not in job.pods
    assert job.host_lists == [[W0, W1], [W0]]
    [message] = job.event_messages("NodeReleasing")
    assert "node-worker-1" in message
    assert W1 in message
    assert "DrainTimeout" not in job.reasons()
    assert "TrainingJobWorkerFailed" not in job.reasons(), "it was not lost"
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")


def test_case_45_a_replacement_joins_when_capacity_returns() -> None:
    job = job_on_nodes()
    job.cluster.pending = {W2}
    announce_node(job)
    job.run(60)
    assert job.status.target_workers == [W0, W2]
    assert job.hosts == [W0]
    job.cluster.pending = set()
    job.run(15)
    assert job.hosts == [W0, W2]
    assert job.status.current_workers == [W0, W2]
    assert job.event_messages("NodeReleasing")[1:] == [], "a node is released once"


def test_case_45_at_min_replicas_the_replacement_is_listed_before_the_worker_leaves() -> None:
    job = job_on_nodes({"worker.minReplicas": 2})
    announce_node(job)
    job.run(25)
    assert job.host_lists == [[W0, W1], [W0, W1, W2], [W0, W2]]
    assert job.status.target_workers == [W0, W2]


def test_case_45_at_min_replicas_without_a_replacement_the_worker_leaves_before_the_deadline() -> None:
    job = job_on_nodes({"worker.minReplicas": 2})
    job.cluster.pending = {W2}
    announce_node(job)
    job.run(45)
    assert job.host_lists == [[W0, W1]], "the first half of the time belongs to the replacement"
    job.run(60)
    assert job.host_lists == [[W0, W1], [W0]]
    assert W1 not in job.pods
    assert job.record.role("worker").below_min_since is not None


def test_case_45_a_worker_that_the_launcher_does_not_leave_is_deleted_before_the_deadline() -> None:
    def busy(call: Exec) -> ExecResult:
        return done(call, stdout=W1.encode()) if call.key.startswith("drain/") else done(call)

    job = EtSimulator(None, busy)
    job.cluster.node_of = spread
    job.run(8)
    announce_node(job)
    deadline = job.cluster.announced["node-worker-1"].deadline
    assert deadline is not None
    while W1 in job.pods:
        job.run(1)
        assert job.now < deadline
    job.run(2)
    assert "DrainTimeout" in job.reasons()
    [deletion] = job.cluster.deleted
    assert deletion.grace_period_seconds is not None, "it has ended before the deadline too"


def test_case_45_all_workers_of_two_nodes_leave_together() -> None:
    job = job_on_nodes({"worker.replicas": 4})
    for node in ("node-worker-1", "node-worker-3"):
        job.cluster.announce(node, 120)
    job.run(25)
    assert job.host_lists[:2] == [workers(0, 1, 2, 3), workers(0, 2)]
    assert job.hosts == workers(0, 2, 4, 5)


def test_case_45_the_last_host_stays_until_another_one_is_listed() -> None:
    job = job_on_nodes({"worker.replicas": 1, "worker.minReplicas": 1})
    job.cluster.pending = {W1}
    job.cluster.announce("node-worker-0", 60)
    job.run(50)
    assert job.hosts == [W0], "an empty list would end the training"
    job.cluster.pending = set()
    job.run(15)
    assert job.hosts == [W1]
    assert W0 not in job.pods


def test_case_45_an_end_that_is_withdrawn_while_no_other_host_is_listed_holds_up_nothing() -> None:
    job = job_on_nodes({"worker.replicas": 1, "worker.minReplicas": 1})
    job.cluster.pending = {W1}
    job.cluster.announce("node-worker-0", 60)
    job.run(30)
    assert job.status.current_scaler == f"ScaleIn:default/{J}-release-node-worker-0"
    job.cluster.announced.clear()
    job.run(60)
    assert (job.status.phase, job.status.current_scaler, job.hosts) == ("Running", "", [W0])
    job.cluster.pending = set()
    job.run(10)
    job.scale_out("out", toAdd={"count": 1})
    job.run(10)
    assert job.scalers["out"].status.phase == "ScaleSucceeded"


def test_case_45_a_release_goes_ahead_of_queued_scalers() -> None:
    job = job_on_nodes({"worker.replicas": 3})
    job.scale_in("first", toDelete={"podNames": [W2]})
    job.reconcile_scaler("first")
    job.cluster.tick(1)
    announce_node(job)
    running: list[str] = []
    for _ in range(30):
        job.run(1)
        if job.status.current_scaler and job.status.current_scaler not in running:
            running.append(job.status.current_scaler)
    assert running == [f"ScaleIn:default/{J}-release-node-worker-1", "ScaleIn:default/first"]
    assert job.hosts == [W0, W3]


def test_case_45_a_node_that_ends_early_loses_its_worker_only_once() -> None:
    job = job_on_nodes({"worker.minReplicas": 2, "worker.restartPolicy": "Always"})
    job.cluster.pending = {W2}
    announce_node(job)
    job.run(3)
    job.cluster.lose(W1)
    job.run(30)
    assert job.status.target_workers == [W0, W2]
    assert worker(3) not in job.cluster.created
    job.cluster.pending = set()
    job.run(15)
    assert job.hosts == [W0, W2]


IGNORED = {"a hint": NoticeCause.CANDIDATE, "a node that is off already": NoticeCause.OUT_OF_SERVICE}


@pytest.mark.parametrize("cause", IGNORED.values(), ids=IGNORED.keys())
def test_case_45_no_worker_leaves_because_of(cause: NoticeCause) -> None:
    job = job_on_nodes()
    job.cluster.announce("node-worker-1", 60, cause)
    job.run(20)
    assert job.hosts == [W0, W1]
    assert job.cluster.deleted == []
    assert job.event_messages("NodeReleasing") == []


def test_case_45_an_operator_that_is_killed_at_any_write_releases_once() -> None:
    steps = 1
    while True:
        job = job_on_nodes()
        announce_node(job)
        before = len(job.steps)
        job.stop_at = before + steps
        job.run(25)
        assert job.hosts == [W0, W2], job.steps[before:]
        assert job.status.target_workers == [W0, W2]
        assert worker(3) not in job.cluster.created
        if len(job.steps) < before + steps:
            return
        steps += 1


def test_case_45_a_job_that_does_not_run_yet_is_left_alone() -> None:
    job = EtSimulator()
    job.cluster.node_of = spread
    job.cluster.pending = {W0}
    job.run(3)
    announce_node(job)
    job.run(5)
    assert job.cluster.deleted == []
    assert running_job().event_messages("NodeReleasing") == []
