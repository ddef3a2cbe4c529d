from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import reasons
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Elastic, Phase, RestartPolicy, RestartScope, Role, Rules
from argosy.workload.record import Record, RestartEntry, RoleRecord, WaitReason
from argosy.workload.record_encoding import decode, encode
from argosy.workload.usage import seconds_until, with_usage
from argosy.workload.usage_record import PricedNode
from tests.support.parameters import marked
from tests.support.spot_trace import SpotTrace, read_trace
from tests.support.workloads import NOW, later, role, workload

JOB = replace(workload(), checkpoint=CheckpointPolicy(uri="file:///checkpoints"))
FOUR = RoleRecord(members=IndexSet.first(4), declared=4)
SIX = RoleRecord(members=IndexSet.first(6), declared=6)
REPLACED = replace(FOUR, replacements={2: 1})
DELETED = (RestartEntry(NOW, "worker", 2, "NodeLost", "Pod"),)


class Step(Struct, frozen=True):
    """What the Record is from this second on."""

    at: float
    phase: Phase
    role: RoleRecord = FOUR
    attempt: int = 1
    waiting: str = ""
    saved_at: float | None = None
    ordered: bool = False
    price: float = 0.0
    """Of a node; it has had a pod since `price_since`, or always."""
    price_since: float | None = None
    history: tuple[RestartEntry, ...] = ()


def record_of(step: Step) -> Record:
    saved = SavedCheckpoint(1, "sha256:0", later(step.saved_at)) if step.saved_at is not None else None
    order = SaveOrder(5, "interval", "Interval", NOW, NOW) if step.ordered else None
    finished = later(step.at) if step.phase.terminal else None
    waiting = WaitReason(step.waiting, "", NOW) if step.waiting else None
    return Record(
        phase=step.phase,
        roles={"worker": step.role},
        attempt=step.attempt,
        waiting=waiting,
        saved=saved,
        order=order,
        finished_at=finished,
        restart_history=step.history,
    )


def priced(step: Step) -> tuple[PricedNode, ...]:
    since = later(step.price_since) if step.price_since is not None else None
    return (PricedNode(step.price, since),) if step.price else ()


def replay(steps: Sequence[Step]) -> Record:
    record: Record | None = None
    for step in steps:
        after = record_of(step)
        after = replace(after, usage=record.usage) if record else after
        record = with_usage(JOB, record, after, priced(step), later(step.at))
    assert record is not None
    return record


class Case(Struct):
    steps: list[Step]
    want: dict[str, float]
    want_cost: tuple[float, float] = (0.0, 0.0)
    """Of everything, and of lost training."""


RUN = [
    Step(0, Phase.PENDING),
    Step(10, Phase.STARTING, waiting=reasons.PODS_STARTING),
    Step(15, Phase.RUNNING),
]
CASES = {
    "start, run and end: waiting, starting and training": Case(
        [*RUN, Step(115, Phase.SUCCEEDED)], {"Waiting": 40, "Starting": 20, "Training": 400}
    ),
    "pods that cannot be scheduled: waiting, not starting": Case(
        [Step(0, Phase.STARTING, waiting=reasons.UNSCHEDULABLE), Step(10, Phase.RUNNING)], {"Waiting": 40}
    ),
    "more replicas: each counts from when it is wanted": Case(
        [*RUN, Step(25, Phase.RUNNING, role=SIX), Step(35, Phase.SUCCEEDED, role=SIX)],
        {"Waiting": 40, "Starting": 20, "Training": 100},
    ),
    "suspended: nothing counts": Case(
        [*RUN, Step(25, Phase.SUSPENDED), Step(999, Phase.PENDING), Step(1000, Phase.STARTING)],
        {"Waiting": 44, "Starting": 20, "Training": 40},
    ),
    "order to save in force: saving until it is answered": Case(
        [*RUN, Step(25, Phase.RUNNING, ordered=True), Step(28, Phase.RUNNING), Step(30, Phase.SUCCEEDED)],
        {"Waiting": 40, "Starting": 20, "Training": 48, "Saving": 12},
    ),
    "restart of the job without a checkpoint: all training is lost": Case(
        [*RUN, Step(25, Phase.RESTARTING, attempt=2), Step(30, Phase.RUNNING, attempt=2)],
        {"Waiting": 40, "Starting": 40, "Training": 0, "Lost": 40},
    ),
    "restart of the job after a checkpoint: training since then is lost, and is restored": Case(
        [
            *RUN,
            Step(25, Phase.RUNNING, saved_at=20),
            Step(27, Phase.RESTARTING, attempt=2, saved_at=20),
            Step(30, Phase.RUNNING, attempt=2, saved_at=20),
        ],
        {"Waiting": 40, "Starting": 20, "Training": 20, "Lost": 28, "Restoring": 12},
    ),
    "one of four replicas replaced: a quarter is lost": Case(
        [*RUN, Step(25, Phase.RESTARTING, role=REPLACED), Step(30, Phase.RUNNING, role=REPLACED)],
        {"Waiting": 40, "Starting": 40, "Training": 30, "Lost": 10},
    ),
    "one of four deleted by the cluster, and created with the number it had: a quarter is lost": Case(
        [*RUN, Step(25, Phase.RESTARTING, history=DELETED), Step(30, Phase.RUNNING, history=DELETED)],
        {"Waiting": 40, "Starting": 40, "Training": 30, "Lost": 10},
    ),
    "one of four replicas replaced for a recorded loss: a quarter is lost, not two": Case(
        [*RUN, Step(25, Phase.RESTARTING, role=REPLACED, history=DELETED)],
        {"Waiting": 40, "Starting": 20, "Training": 30, "Lost": 10},
    ),
    "checkpoint older than the training: no more is at risk than was trained": Case(
        [*RUN, Step(25, Phase.RUNNING, saved_at=1), Step(35, Phase.RESTARTING, attempt=2, saved_at=1)],
        {"Waiting": 40, "Starting": 20, "Training": 0, "Lost": 80},
    ),
    "clock set back: an interval has no negative length": Case(
        [*RUN, Step(5, Phase.SUCCEEDED)], {"Waiting": 40, "Starting": 20, "Training": 0}
    ),
    "priced nodes: an hour costs their price, a restart what was lost": Case(
        [
            Step(0, Phase.STARTING, price=0.0),
            Step(3600, Phase.RUNNING, price=8.0),
            Step(5400, Phase.RESTARTING, attempt=2, price=8.0),
        ],
        {"Starting": 14400, "Training": 0, "Lost": 7200},
        want_cost=(12.0, 4.0),
    ),
    "node that got its pod in the middle of the start: it costs nothing before": Case(
        [
            Step(0, Phase.STARTING),
            Step(3600, Phase.RUNNING, price=8.0, price_since=1800),
        ],
        {"Starting": 14400},
        want_cost=(4.0, 0.0),
    ),
    "node lost while the job waited: it costs until another has taken its place": Case(
        [
            Step(0, Phase.PENDING, price=8.0),
            Step(3600, Phase.RUNNING, price=8.0, price_since=1800),
        ],
        {"Waiting": 14400},
        want_cost=(8.0, 0.0),
    ),
    "node lost while the job waited, which another never replaced: it costs as long as its pod ended": Case(
        [Step(0, Phase.PENDING, price=120.0), Step(3600, Phase.RUNNING)],
        {"Waiting": 14400},
        want_cost=(1.0, 0.0),
    ),
    "node lost at the end of the wait: it costs until then": Case(
        [
            Step(0, Phase.PENDING, price=8.0),
            Step(3600, Phase.PENDING, attempt=2),
        ],
        {"Waiting": 14400},
        want_cost=(8.0, 0.0),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_time_is_accounted_for_by_activity(case: Case) -> None:
    usage = replay(case.steps).usage
    assert dict(usage.seconds) == case.want
    assert (usage.cost, usage.lost_cost) == pytest.approx(case.want_cost)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_accounting_again_changes_nothing(case: Case) -> None:
    record, last = replay(case.steps), case.steps[-1]
    assert with_usage(JOB, record, record, priced(last), later(last.at + 100)) is record


def test_all_time_of_a_long_life_is_accounted_for() -> None:
    phases = [Phase.STARTING, Phase.RUNNING, Phase.RESTARTING]
    steps = [Step(7.3 * number, phases[number % 3], attempt=1 + number // 3) for number in range(3000)]
    steps.append(Step(7.3 * 3000, Phase.SUCCEEDED, attempt=1000))
    spent = sum(replay(steps).usage.seconds.values())
    assert spent == pytest.approx(4 * 7.3 * 3000, rel=1e-4)


def test_an_open_interval_counts_until_now() -> None:
    usage = replay(RUN).usage
    assert seconds_until(usage, later(20))["Training"] == 20


def test_usage_is_stored_in_the_record() -> None:
    record = replay([*RUN, Step(115, Phase.RUNNING, price=1.5)])
    assert decode(encode(record)) == record


def test_a_job_that_never_started_has_no_usage_in_its_record() -> None:
    assert "usage" not in encode(Record(phase_since=datetime.now(NOW.tzinfo)))


FIVE_DAYS = read_trace(Path(__file__).parent / "traces" / "spot-five-days.csv")
SPOT_PRICES = (0.42, 0.55, 0.61)
THREE = role(replicas=3, restart=RestartPolicy.ON_FAILURE)
POLICY = CheckpointPolicy(uri="file:///checkpoints", interval=1800.0)
TRACED = {
    "each lost pod replaced alone, with checkpoints": (THREE, RestartScope.POD, POLICY),
    "elastic, with checkpoints": (replace(THREE, elastic=Elastic(1, 3)), RestartScope.JOB, POLICY),
    "all pods restarted together, with checkpoints": (THREE, RestartScope.JOB, POLICY),
    "all pods restarted together, without checkpoints": (THREE, RestartScope.JOB, None),
}


@pytest.mark.parametrize("case", marked(TRACED, list(TRACED)[:2], pytest.mark.long))
def test_five_days_on_spot_machines_are_accounted_for(
    case: tuple[Role, RestartScope, CheckpointPolicy | None],
) -> None:
    workers, scope, policy = case
    rules = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),), restart_scope=scope)
    trace = SpotTrace(replace(workload(workers, rules=rules), checkpoint=policy), SPOT_PRICES)
    trace.replay(FIVE_DAYS)
    usage = trace.finish().usage
    assert sum(usage.seconds.values()) == pytest.approx(trace.replica_seconds, rel=0.01)
    assert usage.cost == pytest.approx(trace.dollars, rel=0.005)
    if workers.elastic is None:
        assert trace.replica_seconds == pytest.approx(3 * trace.elapsed, rel=0.01)
    happened = {name for name, seconds in usage.seconds.items() if seconds}
    assert happened >= {"Starting", "Training", "Waiting"}
    if policy is not None:
        assert happened >= {"Saving", "Restoring"}
        assert "Lost" in happened
