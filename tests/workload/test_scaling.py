"""Tests scale operations: order, all-or-nothing additions, drained removals, and crashes at every step."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from argosy.plan.actions import Exec, ExecResult, ExecStatus
from argosy.workload import messages
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase, RestartPolicy
from argosy.workload.operation import ScaleStep
from argosy.workload.scale_request import ScaleRequest, ScaleState, Script, next_to_add
from tests.support.scale_simulator import ScaleSimulator, done, elastic_job, indexes, names, running
from tests.support.workloads import NOW, later


def scale_out(count: int = 2, name: str = "out", **fields: object) -> ScaleRequest:
    return ScaleRequest(
        **{  # type: ignore[arg-type]  # tests name fields freely
            "id": f"uid-{name}",
            "kind": "Out",
            "name": name,
            "created": NOW,
            "select": lambda state: next_to_add(state, count),
            "timeout": 60.0,
            **fields,
        }
    )


def scale_in(*chosen: int, name: str = "in", **fields: object) -> ScaleRequest:
    def select(state: ScaleState) -> IndexSet | str:
        return indexes(*chosen)

    return ScaleRequest(
        **{  # type: ignore[arg-type]  # tests name fields freely
            "id": f"uid-{name}",
            "kind": "In",
            "name": name,
            "created": NOW,
            "select": select,
            "timeout": 600.0,
            **fields,
        }
    )


def test_the_launcher_is_created_when_all_workers_run_and_are_listed() -> None:
    job = ScaleSimulator(elastic_job(2))
    job.pending = {"job-worker-1"}
    job.run(5)
    assert "job-launcher-0" not in job.pods
    job.pending = set()
    job.run(5)
    assert "job-launcher-0" in job.pods
    assert job.listed() == (0, 1)
    assert job.record.phase is Phase.RUNNING


def test_the_launcher_waits_for_workers_that_cannot_be_attached() -> None:
    def answer(call: Exec) -> ExecResult:
        return done(call, exit_code=1 if call.pod == "job-worker-1" else 0)

    job = ScaleSimulator(elastic_job(2), answer)
    job.run(10)
    assert "job-launcher-0" not in job.pods
    assert job.listed() == (0,)
    job.answer = done
    job.run(5)
    assert "job-launcher-0" in job.pods


def test_new_replicas_join_together_when_all_of_them_run() -> None:
    job = running()
    job.pending = {"job-worker-3"}
    job.request(scale_out(2))
    job.run(5)
    assert job.workers() == [0, 1, 2, 3]
    assert (job.members(), job.listed()) == ((0, 1), (0, 1))
    job.pending = set()
    job.run(4)
    assert (job.members(), job.listed()) == ((0, 1, 2, 3), (0, 1, 2, 3))
    assert job.host_lists == [(), (0, 1), (0, 1, 2, 3)]
    assert not job.requests, "the request has finished"


def test_nothing_is_done_before_the_request_shows_the_choice() -> None:
    job = running()
    job.request(scale_out(1))
    job.reconcile()
    job.reconcile()
    operation = job.record.operation
    assert operation is not None
    assert (operation.step, operation.indexes) == (ScaleStep.ADDING, "2")
    assert job.workers() == [0, 1]
    assert "job-worker-2" not in job.children, "no Service either"


def test_all_new_pods_are_deleted_if_one_does_not_run_in_time() -> None:
    job = running()
    job.pending = {"job-worker-3"}
    job.request(scale_out(2, timeout=20.0))
    job.run(30)
    assert job.workers() == [0, 1]
    assert (job.members(), job.listed()) == ((0, 1), (0, 1))
    assert job.host_lists == [(), (0, 1)]
    assert "job-worker-3" not in job.children, "its Service is deleted too"


def test_a_new_pod_that_fails_is_not_replaced() -> None:
    job = running(elastic_job(restart=RestartPolicy.ALWAYS))
    job.pending = {"job-worker-3"}
    job.request(scale_out(2, timeout=20.0))
    job.run(5)
    job.fail("job-worker-2")
    job.run(30)
    assert job.workers() == [0, 1]
    assert job.created.count("job-worker-4") == 0


def test_a_request_that_is_deleted_while_it_waits_is_undone_and_the_next_succeeds() -> None:
    job = running()
    job.pending = {"job-worker-2"}
    job.request(scale_out(1))
    job.run(5)
    assert job.workers() == [0, 1, 2]
    job.requests.clear()
    job.run(3)
    assert job.workers() == [0, 1]
    job.pending = set()
    job.request(scale_out(1, "second"))
    job.run(8)
    assert (job.members(), job.listed()) == ((0, 1, 2), (0, 1, 2))


def test_a_replica_leaves_the_host_list_first_and_is_deleted_when_the_launcher_has_left_it() -> None:
    attached = {"job-worker-2"}

    def answer(call: Exec) -> ExecResult:
        return done(call, stdout="\n".join(attached).encode() if call.command[0] == "drained" else b"")

    job = running(elastic_job(3), answer)
    job.request(scale_in(2))
    job.run(8)
    assert job.listed() == (0, 1)
    assert job.workers() == [0, 1, 2]
    assert job.members() == (0, 1, 2)
    attached.clear()
    job.run(6)
    assert job.workers() == [0, 1]
    assert job.members() == (0, 1)
    assert "job-worker-2" not in job.children
    assert not job.requests


def test_replicas_are_deleted_one_by_one_as_the_launcher_leaves_them() -> None:
    attached = {"job-worker-1", "job-worker-10"}

    def answer(call: Exec) -> ExecResult:
        return done(call, stdout=" ".join(attached).encode() if call.command[0] == "drained" else b"")

    job = running(elastic_job(11), answer)
    job.request(scale_in(1, 10))
    job.run(6)
    attached.remove("job-worker-10")
    job.run(4)
    assert 1 in job.workers()
    assert 10 not in job.workers()


def test_a_launcher_that_does_not_leave_a_replica_loses_it_when_time_is_up() -> None:
    job = running(elastic_job(3), lambda call: done(call, stdout=b"job-worker-2"))
    job.request(scale_in(2, timeout=10.0))
    job.run(8)
    assert job.workers() == [0, 1, 2]
    job.run(10)
    assert job.workers() == [0, 1]
    assert not job.requests


def test_a_scale_in_that_is_deleted_half_way_lists_the_rest_again() -> None:
    job = running(elastic_job(3), lambda call: done(call, stdout=b"job-worker-2"))
    job.request(scale_in(2))
    job.run(5)
    assert job.listed() == (0, 1)
    job.requests.clear()
    job.run(10)
    assert (job.members(), job.listed()) == ((0, 1, 2), (0, 1, 2))


SCRIPT = Script("/scale.sh", (("A", "1 $x\n'2'"),), timeout=30.0)


def test_a_script_runs_once_with_the_added_pods_and_their_slots() -> None:
    job = running()
    job.request(scale_out(2, script=SCRIPT))
    job.run(8)
    calls = [call for call in job.calls if call.key.startswith("script/")]
    assert len(calls) == 1
    assert calls[0].pod == "job-launcher-0"
    assert calls[0].command[-3:] == ("/scale.sh", "job-worker-2:1,job-worker-3:1", "A=1 $x\n'2'")
    assert job.listed() == (0, 1, 2, 3)


def test_a_script_that_fails_is_repeated_as_often_as_allowed() -> None:
    codes = iter([1, 2, 0])
    job = running(answer=lambda call: done(call, next(codes) if call.key.startswith("script") else 0))
    job.request(scale_out(1, script=replace(SCRIPT, retries=2)))
    job.run(10)
    assert names(job.calls).count("script") == 3
    assert job.members() == (0, 1, 2)


def test_a_script_that_fails_for_good_undoes_the_scale_out() -> None:
    job = running(answer=lambda call: done(call, 3 if call.key.startswith("script") else 0))
    job.request(scale_out(1, script=SCRIPT))
    job.run(8)
    [operation] = job.finished
    assert operation.step is ScaleStep.FAILED
    assert operation.message == "script /scale.sh failed: exit code 3"
    assert (job.members(), job.workers()) == ((0, 1), [0, 1])


def test_a_script_that_fails_for_good_removes_nothing() -> None:
    job = running(elastic_job(3), lambda call: done(call, 3 if call.key.startswith("script") else 0))
    job.request(scale_in(2, script=SCRIPT))
    job.run(10)
    assert (job.members(), job.listed(), job.workers()) == ((0, 1, 2), (0, 1, 2), [0, 1, 2])


def test_replicas_are_deleted_right_after_their_script_succeeded() -> None:
    job = running(elastic_job(3), lambda call: done(call, stdout=b"job-worker-2"))
    job.request(scale_in(2, script=SCRIPT))
    job.run(8)
    assert job.workers() == [0, 1]
    assert "drain" not in names(job.calls)


def test_a_script_in_a_launcher_that_cannot_be_reached_is_tried_again() -> None:
    answers = iter([ExecStatus.NOT_REACHABLE, ExecStatus.NOT_REACHABLE])

    def answer(call: Exec) -> ExecResult:
        is_script = call.key.startswith("script/")
        status = next(answers, ExecStatus.DONE) if is_script else ExecStatus.DONE
        return ExecResult(call.key, status, 0 if status is ExecStatus.DONE else None)

    job = running(answer=answer)
    job.request(scale_out(1, script=SCRIPT))
    job.run(12)
    assert job.members() == (0, 1, 2)


def test_requests_are_executed_one_at_a_time_and_the_oldest_first() -> None:
    job = running()
    job.request(scale_in(1, name="second", created=later(1)))
    job.request(scale_out(1, "first", created=later(0)))
    job.run(20)
    assert job.host_lists == [(), (0, 1), (0, 1, 2), (0, 2)]


def test_an_urgent_request_goes_first() -> None:
    job = running()
    job.request(scale_out(1, "older", created=later(0)))
    job.request(scale_in(1, name="newer", created=later(1), urgent=True))
    job.run(20)
    assert job.host_lists[2] == (0,)


def test_a_request_that_is_not_possible_fails_and_changes_nothing() -> None:
    job = running()
    job.request(scale_out(1, select=lambda state: "no such worker: x"))
    job.reconcile()
    [operation] = job.record.operations
    assert (operation.step, operation.message) == (ScaleStep.FAILED, "no such worker: x")
    kept = job.stored
    job.run(5)
    assert job.members() == (0, 1)
    assert job.stored == kept, "that the request shows the result is no reason to write"
    job.request(scale_out(1, "next", select=lambda state: "no such worker: y"))
    job.reconcile()
    assert [item.name for item in job.record.operations] == ["next"], "the one that is shown is forgotten"


def test_requests_wait_until_the_job_runs() -> None:
    job = ScaleSimulator(elastic_job())
    job.pending = {"job-worker-0"}
    job.request(scale_out(1))
    job.run(5)
    assert not job.record.operations
    job.pending = set()
    job.run(20)
    assert job.members() == (0, 1, 2)


def test_a_changed_number_of_replicas_adds_and_removes_them() -> None:
    job = running()
    for replicas, want in ((3, (0, 1, 2)), (2, (0, 1))):
        worker = replace(job.job.roles["worker"], replicas=replicas)
        roles = {**job.job.roles, "worker": worker}
        job.job = replace(job.job, roles=roles, generation=job.job.generation + 1)
        job.run(10)
        assert (job.members(), job.listed()) == (want, want)
    assert "drain" in names(job.calls)
    assert job.record.operation is None


def test_a_number_of_replicas_that_requests_have_reached_already_changes_nothing() -> None:
    job = running()
    job.request(scale_out(1))
    job.run(10)
    worker = replace(job.job.roles["worker"], replicas=3)
    job.job = replace(job.job, roles={**job.job.roles, "worker": worker}, generation=2)
    job.run(10)
    assert job.members() == (0, 1, 2)
    assert job.record.role("worker").declared == 3


ENDS = {
    "job finished": messages.JOB_FINISHED_WHILE_SCALING,
    "job suspended": messages.JOB_SUSPENDED_WHILE_SCALING,
}


@pytest.mark.parametrize("end", ENDS)
def test_an_operation_fails_when_its_job_ends(end: str) -> None:
    job = running()
    job.pending = {"job-worker-2"}
    job.request(scale_out(1))
    job.run(4)
    if end == "job finished":
        job.finish_launcher()
    else:
        job.job = replace(job.job, suspended=True)
    job.reconcile()
    [operation] = job.record.operations
    assert (operation.step, operation.message) == (ScaleStep.FAILED, ENDS[end])
    assert not job.record.role("worker").joining


def test_a_lost_worker_leaves_the_list_at_once_and_its_replacement_joins_when_it_runs() -> None:
    job = running(elastic_job(restart=RestartPolicy.ON_FAILURE))
    job.pending = {"job-worker-2"}
    job.fail("job-worker-1")
    job.reconcile()
    assert job.listed() == (0,)
    assert job.members() == (0, 2)
    job.run(8)
    assert job.listed() == (0,)
    job.pending = set()
    job.run(8)
    assert job.listed() == (0, 2)
    assert "job-worker-1" in job.pods, "the failed pod is kept"


def test_a_host_list_is_never_empty_while_the_launcher_runs() -> None:
    job = running()
    job.fail("job-worker-0")
    job.fail("job-worker-1")
    job.run(3)
    assert job.listed() == (0, 1)
    assert job.record.phase is not Phase.FAILED


def test_additions_wait_until_the_last_change_was_taken_up() -> None:
    job = running(elastic_job(3, restart=RestartPolicy.ON_FAILURE))
    job.run(10)
    job.fail("job-worker-2")
    job.reconcile()
    changed_at = job.now
    while job.listed() == (0, 1):
        job.run(1)
    assert job.now - changed_at >= timedelta(seconds=5)
    assert job.listed() == (0, 1, 3)


def scale_out_and_in(stop_at: int | None) -> ScaleSimulator:
    job = running()
    job.steps = 0
    job.stop_at = stop_at
    job.request(scale_out(2, created=later(0)))
    job.request(scale_in(1, created=later(1)))
    job.run(40)
    return job


STEPS = scale_out_and_in(None).steps


@pytest.mark.parametrize("stop_at", range(1, STEPS + 1))
def test_an_operator_killed_at_any_step_of_a_scaling_ends_in_the_same_state(stop_at: int) -> None:
    job = scale_out_and_in(stop_at)
    assert (job.members(), job.listed()) == ((0, 2, 3), (0, 2, 3))
    assert job.workers() == [0, 2, 3]
    assert job.created == [*job.created[:3], "job-worker-2", "job-worker-3"], "nothing is created twice"
    assert sorted(job.children) == ["job-config", "job-worker-0", "job-worker-2", "job-worker-3"]
    assert job.record.operation is None
