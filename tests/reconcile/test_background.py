"""Tests for commands in the background: their bounds, what becomes of their answers, and leadership."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from msgspec import Struct
from prometheus_client import CollectorRegistry

from argosy.engine.errors import LeaseExpired
from argosy.engine.metrics import Metrics
from argosy.engine.objects import Key
from argosy.plan.actions import Call, CallResult, CallStatus, Exec, ExecResult, ExecStatus
from argosy.reconcile.background import MAX_CALLS_PER_OBJECT, MAX_RUNNING_PER_OBJECT, BackgroundCalls
from argosy.reconcile.background_pool import MAX_RUNNING, BackgroundPool
from tests.support.captured_logs import captured_lines
from tests.support.fake_exec import FakeExec, settle

JOB = Key("home", "job")


def exec_of(key: str) -> Exec:
    return Exec(key, "launcher", "uid-of-pod", "main", ("true",))


@dataclass
class Leader:
    """One kind's calls on a pool, with a fake of what runs commands."""

    exec: FakeExec = field(default_factory=FakeExec)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    enqueued: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = BackgroundPool(self.exec.run, Metrics(self.registry))
        self.calls = BackgroundCalls(self.pool)
        self.calls.on_answer(self.enqueued.append)
        self.pool.begin_term()

    async def plan(self, *keys: str, job: Key = JOB, uid: str = "u", recorded: bool = True) -> None:
        """Execute a plan of the job with these Execs."""
        self.calls.update(job, uid, [exec_of(key) for key in keys], recorded=recorded)
        await settle()

    def answered(self, job: Key = JOB, uid: str = "u") -> list[str]:
        return sorted(self.calls.exec_results(job, uid))

    def counted(self, result: str) -> float:
        return self.registry.get_sample_value("argosy_exec_total", {"result": result}) or 0.0

    @property
    def in_progress(self) -> float | None:
        return self.registry.get_sample_value("argosy_exec_in_progress")


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    leader = Leader()
    yield leader
    await leader.pool.end_term()


async def test_an_answer_enqueues_its_object_and_stays_while_plans_contain_the_key(leader: Leader) -> None:
    await leader.plan("a")
    assert (leader.answered(), leader.enqueued, leader.in_progress) == ([], [], 1)
    await leader.exec.answer("home/a", ExecResult("a", exit_code=3, stdout=b"text"))
    assert (leader.enqueued, leader.in_progress) == ([JOB], 0)
    for _ in range(2):
        await leader.plan("a")
        assert leader.calls.exec_results(JOB, "u") == {"a": ExecResult("a", exit_code=3, stdout=b"text")}
    assert leader.exec.started == ["home/a"]
    await leader.plan()
    assert leader.answered() == []
    assert leader.enqueued == [JOB]


NOT_TWICE: dict[str, tuple[Sequence[str], Sequence[str], Sequence[str]]] = {
    # Plans before the answer, plans after it, and what was started in the end.
    "a key that is running is not started again": (["a", "a", "a"], [], ["home/a"]),
    "a key with an answer is not started again": (["a"], ["a", "a"], ["home/a"]),
    "a key that one plan left out is started again": (["a"], ["", "a"], ["home/a", "home/a"]),
    "another key is started": (["a"], ["b"], ["home/a", "home/b"]),
}


@pytest.mark.parametrize(("before", "after", "want"), NOT_TWICE.values(), ids=NOT_TWICE.keys())
async def test_when_a_command_is_started(
    leader: Leader, before: Sequence[str], after: Sequence[str], want: Sequence[str]
) -> None:
    for key in before:
        await leader.plan(*key)
    await leader.exec.answer("home/a")
    for key in after:
        await leader.plan(*key)
    assert leader.exec.started == want


async def test_a_plan_without_a_running_key_cancels_it(leader: Leader) -> None:
    await leader.plan("a", "b")
    await leader.plan("b")
    assert (leader.exec.running, leader.exec.cancelled) == (["home/b"], ["home/a"])
    assert (leader.counted("cancelled"), leader.enqueued) == (1, [])


async def test_a_plan_that_is_not_recorded_yet_starts_calls_and_drops_none(leader: Leader) -> None:
    await leader.plan("a", "b")
    await leader.exec.answer("home/a")
    await leader.plan("c", recorded=False)
    assert (leader.answered(), leader.exec.running) == (["a"], ["home/b", "home/c"])
    await leader.plan("c")
    assert (leader.answered(), leader.exec.running) == ([], ["home/c"])


async def test_the_answer_to_a_dropped_call_is_not_taken_for_that_of_the_next(leader: Leader) -> None:
    await leader.plan("a")
    leader.exec.end("home/a")
    await asyncio.sleep(0)  # the call has ended, and its answer has not been stored yet
    for keys in ([], ["a"]):
        leader.calls.update(JOB, "u", [exec_of(key) for key in keys], recorded=True)
    await settle()
    assert (leader.answered(), leader.exec.running, leader.enqueued) == ([], ["home/a"], [])


async def test_an_object_of_the_same_name_gets_no_answer_of_its_predecessor(leader: Leader) -> None:
    await leader.plan("a", "b")
    await leader.exec.answer("home/a")
    assert leader.answered(uid="another") == []
    await leader.plan("a", uid="another")
    assert leader.answered(uid="another") == []
    assert leader.exec.cancelled == ["home/b"]
    assert leader.exec.running == ["home/a"]


async def test_calls_of_a_deleted_object_are_cancelled_and_forgotten(leader: Leader) -> None:
    await leader.plan("a", "b", "c", "d", "e")
    await leader.exec.answer("home/a")
    leader.calls.forget(JOB)
    await settle()
    assert (leader.answered(), leader.exec.running) == ([], [])
    assert leader.enqueued == [JOB]  # by the answer, not by the cancelled ones


async def test_an_object_runs_few_commands_at_a_time_in_the_order_of_its_plan(leader: Leader) -> None:
    keys = [f"{number:02}" for number in reversed(range(MAX_RUNNING_PER_OBJECT + 2))]
    names = [f"home/{key}" for key in keys]
    await leader.plan(*keys)
    assert leader.exec.started == names[:-2]
    await leader.exec.answer(names[2])
    await leader.exec.answer(names[0])
    assert leader.exec.started == names
    assert leader.exec.most_at_once == MAX_RUNNING_PER_OBJECT


async def test_an_object_has_a_bounded_number_of_answers(leader: Leader) -> None:
    keys = [f"{number:02}" for number in range(MAX_CALLS_PER_OBJECT + 2)]
    await leader.plan(*keys)
    while leader.exec.running:
        await leader.exec.answer(leader.exec.running[0])
    await leader.plan(*keys)
    assert leader.answered() == keys[:-2]
    await leader.plan(*keys[1:])
    assert leader.exec.running == [f"home/{keys[-2]}"]


async def test_one_namespace_uses_half_of_the_slots_and_leaves_the_others(leader: Leader) -> None:
    for number in range(MAX_RUNNING):
        await leader.plan(*(f"{number}-{key}" for key in "abcd"), job=Key("greedy", f"job-{number}"))
    assert len(leader.exec.running) == leader.in_progress == MAX_RUNNING // 2
    await leader.plan("a", job=Key("modest", "job"))
    assert "modest/a" in leader.exec.running


async def test_the_number_of_commands_is_bounded_over_all_namespaces(leader: Leader) -> None:
    for number in range(2 * MAX_RUNNING):
        await leader.plan("a", job=Key(f"ns-{number}", "job"))
    assert leader.exec.most_at_once == leader.in_progress == MAX_RUNNING
    for number in range(MAX_RUNNING):
        await leader.exec.answer(f"ns-{number}/a")
    assert len(leader.exec.started) == 2 * MAX_RUNNING
    assert leader.exec.most_at_once == MAX_RUNNING


async def test_namespaces_take_turns_when_slots_become_free(leader: Leader) -> None:
    for number in range(MAX_RUNNING - 1):
        await leader.plan("a", job=Key(f"other-{number}", "job"))
    await leader.plan("1", "2", "3", job=Key("x", "job"))
    await leader.plan("1", "2", "3", job=Key("y", "job"))
    assert leader.exec.started[MAX_RUNNING - 1 :] == ["x/1"]
    for number in range(9):
        await leader.exec.answer(f"other-{number}/a")
    assert leader.exec.started[MAX_RUNNING:] == ["y/1", "x/2", "y/2", "x/3", "y/3"]


async def test_a_waiting_call_that_is_dropped_never_starts(leader: Leader) -> None:
    for number in range(MAX_RUNNING):
        await leader.plan("a", job=Key(f"ns-{number}", "job"))
    await leader.plan("late")
    await leader.plan()
    await leader.exec.answer("ns-0/a")
    assert "home/late" not in leader.exec.started


async def test_the_end_of_a_term_cancels_what_runs_and_what_waits(leader: Leader) -> None:
    await leader.plan("1", "2", "3", "4", "5")
    await leader.exec.answer("home/1")
    await leader.pool.end_term()
    assert leader.exec.running == []
    assert leader.exec.cancelled == ["home/2", "home/3", "home/4", "home/5"]
    await leader.plan("6")
    assert "home/6" not in leader.exec.started, "this replica no longer leads"


async def test_nothing_of_a_term_is_an_input_of_the_next(leader: Leader) -> None:
    await leader.plan("a", "b")
    await leader.exec.answer("home/a")
    await leader.pool.end_term()
    leader.calls.clear()
    leader.pool.begin_term()
    assert leader.answered() == []
    await leader.plan("a", "b")
    assert leader.exec.started == ["home/a", "home/b", "home/a", "home/b"]
    assert leader.answered() == []


async def test_a_call_that_the_lease_forbids_has_no_answer_and_is_started_by_a_later_plan(
    leader: Leader,
) -> None:
    await leader.plan("a")
    await leader.exec.answer("home/a", LeaseExpired())
    assert (leader.answered(), leader.enqueued, leader.counted("cancelled")) == ([], [], 1)
    await leader.plan("a")
    assert leader.exec.running == ["home/a"]


async def test_an_unexpected_error_is_an_answer_and_frees_the_slot(leader: Leader) -> None:
    await leader.plan("a")
    with captured_lines() as lines:
        await leader.exec.answer("home/a", ValueError("no JSON"))
    want = ExecResult("a", ExecStatus.NOT_REACHABLE, message="ValueError('no JSON')")
    assert leader.calls.exec_results(JOB, "u") == {"a": want}
    assert (leader.in_progress, leader.enqueued) == (0, [JOB])
    assert any("exec failed" in str(line) for line in lines)


COUNTED = {
    "exit code 0: success": (ExecResult("a", exit_code=0), "success"),
    "another exit code: non-zero-exit": (ExecResult("a", exit_code=1), "non-zero-exit"),
    "not reachable": (ExecResult("a", ExecStatus.NOT_REACHABLE), "not-reachable"),
    "timed out": (ExecResult("a", ExecStatus.TIMED_OUT), "timed-out"),
    "pod gone": (ExecResult("a", ExecStatus.POD_GONE), "pod-gone"),
}


@pytest.mark.parametrize(("result", "want"), COUNTED.values(), ids=COUNTED.keys())
async def test_commands_are_counted_by_their_result(leader: Leader, result: ExecResult, want: str) -> None:
    await leader.plan("a")
    await leader.exec.answer("home/a", result)
    assert leader.counted(want) == 1


class Request(Struct, frozen=True):
    pass


async def test_calls_of_a_driver_that_hangs_hold_up_neither_commands_nor_other_drivers() -> None:
    async def make_call(namespace: str, call: Call) -> CallResult:
        if call.driver == "slow":
            await asyncio.Event().wait()
        return CallResult(call.key, CallStatus.REFUSED, code="no")

    registry, commands = CollectorRegistry(), FakeExec()
    pool = BackgroundPool(commands.run, Metrics(registry), run_call=make_call)
    calls = BackgroundCalls(pool)
    pool.begin_term()
    for number in range(2 * MAX_RUNNING):
        key = Key(f"ns-{number}", "job")
        calls.update(key, "u", [Call("slow", "slow", Request())], recorded=True)
    calls.update(JOB, "u", [exec_of("a"), Call("b", "fast", Request())], recorded=True)
    await settle()
    assert commands.started == ["home/a"]
    assert calls.call_results(JOB, "u") == {"b": CallResult("b", CallStatus.REFUSED, code="no")}
    assert calls.exec_results(JOB, "u") == {}
    assert registry.get_sample_value("argosy_calls_in_progress") == MAX_RUNNING
    refused = {"driver": "fast", "result": "refused"}
    assert registry.get_sample_value("argosy_calls_total", refused) == 1
    await pool.end_term()
    assert registry.get_sample_value("argosy_calls_in_progress") == 0
