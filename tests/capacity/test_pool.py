"""Tests which machines a pool requests, replaces and gives up, as a table of one decision each."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from argosy.capacity.pool import PoolFacts, PoolMachine, PoolNode, PoolPlan, decide, delay_after, needs_nodes
from argosy.capacity.pool_record import Leaving, PoolRecord, Slot, Why

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON = NOW + timedelta(seconds=30)
DRAINED = NOW + timedelta(seconds=120)


def machine(name: str, **seen: Any) -> PoolMachine:
    return PoolMachine(name=name, uid=f"uid-{name}", **{"node": name, "ready": True, "exists": True, **seen})


def slot(index: int, name: str, **known: Any) -> Slot:
    base = Slot(index, name, NOW, uid=f"uid-{name}", node=name, ready_at=NOW - timedelta(hours=1))
    return replace(base, **known)


def run(
    record: PoolRecord | None,
    *machines: PoolMachine,
    wanted: int = 2,
    nodes: Mapping[str, PoolNode | None] = {},
    **facts: Any,
) -> PoolPlan:
    return decide(
        record,
        PoolFacts(
            wanted=wanted,
            **{"now": NOW, "drain_seconds": 120.0, **facts},
            name_of=lambda index, stamp: f"p-{index}-{stamp - int(NOW.timestamp())}",
            machines={each.name: each for each in machines},
            nodes={
                name: node and replace(node, machine=node.machine or name) for name, node in nodes.items()
            },
        ),
    )


def names(plan: PoolPlan) -> list[str]:
    return [slot.machine for slot in plan.record.slots]


def leaving(plan: PoolPlan) -> dict[str, str]:
    return {each.machine: each.why.value for each in plan.record.leaving}


TWO = PoolRecord(slots=(slot(0, "a"), slot(1, "b")))
A, B = machine("a"), machine("b")
IDLE = {"a": PoolNode("uid-node-a"), "b": PoolNode("uid-node-b")}


def test_a_new_pool_names_its_machines_before_they_exist() -> None:
    plan = run(PoolRecord())
    assert names(plan) == ["p-0-0", "p-1-1"]
    assert [event.reason for event in plan.events] == ["MachineRequested"]
    assert run(plan.record).record == plan.record, "the same machines, also if the operator died right here"


def test_fifty_machines_are_asked_for_at_a_time() -> None:
    plan = run(PoolRecord(), wanted=200)
    first = [each for each in names(plan) if each]
    assert len(first) == 50
    nowhere = [machine(name, node="", ready=False, exists=False) for name in first]
    assert [each for each in names(run(plan.record, *nowhere, wanted=200)) if each] == first
    some = [machine(name, node="", ready=False) for name in first[:10]]
    later = run(plan.record, *some, *nowhere[10:], wanted=200)
    assert len([each for each in names(later) if each]) == 60


def test_zones_where_machines_are_preempted_are_remembered() -> None:
    lost = machine("b", problem="Preempted", preempted=True, zone="us-east1-b", deadline=SOON)
    stopped = machine("a", problem="UserStopped", zone="us-east1-c", over=True)
    rates = run(TWO, stopped, lost).record.zone_rates
    assert [(rate.zone, rate.rate) for rate in rates] == [("us-east1-b", 1.0)]


def test_names_are_never_used_twice_also_if_the_clock_goes_back() -> None:
    record = PoolRecord(last_stamp=int(NOW.timestamp()) + 100)
    assert names(run(record)) == ["p-0-101", "p-1-102"]


LOSSES: dict[str, PoolMachine] = {
    "its end is announced": machine("b", problem="Preempted, reported by gce-preempted", deadline=SOON),
    "gone": machine("b", problem="HostError", over=True, deadline=SOON),
    "its object is being deleted": machine("b", deleting=True),
}


@pytest.mark.parametrize("lost", LOSSES.values(), ids=LOSSES.keys())
def test_a_lost_machine_is_replaced_at_once(lost: PoolMachine) -> None:
    plan = run(TWO, A, lost)
    assert names(plan) == ["a", "p-1-0"]
    assert leaving(plan) == {"b": "Lost"}
    assert [event.reason for event in plan.events][:2] == ["MachineLost", "MachineRequested"]
    again = run(plan.record, A, lost)
    assert names(again) == names(plan), "one loss is one replacement"


def test_a_machine_with_a_notice_stays_while_pods_save_and_goes_at_its_deadline() -> None:
    noticed = LOSSES["its end is announced"]
    record = run(TWO, A, noticed).record
    busy = {"b": PoolNode("uid-node-b", closed=True, ends_at=SOON, pods=1)}
    waiting = run(record, A, noticed, nodes=busy)
    assert (waiting.removed, waiting.drains, waiting.requeue_at) == ((), (), SOON)
    assert run(record, A, noticed, nodes=busy, now=SOON).removed == ("b",)
    assert run(
        record, A, noticed, nodes={"b": PoolNode("uid-node-b", closed=True, ends_at=SOON)}
    ).removed == ("b",)


def test_an_object_that_is_missing_for_a_moment_is_not_replaced() -> None:
    plan = run(TWO, A)
    assert names(plan) == ["a", "b"]
    assert plan.requeue_at == NOW + timedelta(seconds=5)
    assert run(plan.record, A, B, now=plan.requeue_at).record.slots[1].missing_since is None
    later = run(plan.record, A, now=plan.requeue_at)
    assert names(later) == ["a", "p-1-5"]


def test_a_machine_whose_name_is_taken_gets_another_name() -> None:
    unseen = PoolRecord(slots=(slot(0, "a"), slot(1, "b", uid="", node="", ready_at=None)))
    by_an_object = run(unseen, A, taken=frozenset({"b"}))
    by_a_machine = run(unseen, A, machine("b", node="", ready=False, name_taken=True))
    assert names(by_an_object) == names(by_a_machine) == ["a", "p-1-0"]
    assert (leaving(by_an_object), leaving(by_a_machine)) == ({}, {"b": "Lost"})
    assert by_a_machine.record.slots[1].short_lives == 0


def test_short_lives_in_a_row_delay_the_next_machine_and_a_long_one_ends_the_row() -> None:
    lost = LOSSES["its end is announced"]
    third = PoolRecord(slots=(slot(0, "a"), slot(1, "b", ready_at=None, short_lives=2)))
    plan = run(third, A, lost)
    assert (names(plan), plan.requeue_at) == (["a", ""], NOW + timedelta(seconds=30))
    assert names(run(plan.record, A, lost, now=NOW + timedelta(seconds=30))) == ["a", "p-1-30"]
    after_long_life = run(PoolRecord(slots=(slot(0, "a"), slot(1, "b", short_lives=9))), A, lost)
    assert names(after_long_life) == ["a", "p-1-0"]
    assert [delay_after(lives).total_seconds() for lives in (1, 2, 3, 4, 9, 10**6)] == [
        0,
        0,
        30,
        60,
        600,
        600,
    ]


SURPLUS: dict[str, tuple[PoolRecord, tuple[PoolMachine, ...], Mapping[str, PoolNode | None], str]] = {
    "one that has not joined goes before one without pods": (
        PoolRecord(slots=(slot(0, "a"), slot(1, "b", node=""))),
        (A, machine("b", node="", ready=False)),
        IDLE,
        "b",
    ),
    "one that was never seen goes before one that has not joined": (
        PoolRecord(slots=(slot(0, "a", node=""), slot(1, "b", uid="", node=""))),
        (machine("a", node="", ready=False),),
        {},
        "b",
    ),
    "one with fewer pods goes first": (TWO, (A, B), {**IDLE, "b": PoolNode("x", pods=2)}, "a"),
    "of equal ones the newest goes first": (
        PoolRecord(slots=(slot(0, "a", requested_at=SOON), slot(1, "b"))),
        (A, B),
        IDLE,
        "a",
    ),
}


@pytest.mark.parametrize(("record", "machines", "nodes", "want"), SURPLUS.values(), ids=SURPLUS.keys())
def test_surplus(
    record: PoolRecord,
    machines: tuple[PoolMachine, ...],
    nodes: Mapping[str, PoolNode | None],
    want: str,
) -> None:
    plan = run(record, *machines, wanted=1, nodes=nodes)
    assert {"a", "b"} - set(names(plan)) == {want}


def test_surplus_machine_is_drained_before_it_is_deleted() -> None:
    busy = {"a": PoolNode("uid-node-a", pods=2), "b": PoolNode("uid-node-b", pods=1)}
    assert needs_nodes(TWO, 1) == {"a", "b"}
    plan = run(TWO, A, B, wanted=1, nodes=busy)
    assert [(drain.node, drain.uid, drain.until) for drain in plan.drains] == [("b", "uid-node-b", DRAINED)]
    assert plan.removed == ()
    told = {"b": PoolNode("uid-node-b", closed=True, ends_at=SOON, pods=1)}
    waiting = run(plan.record, A, B, wanted=1, nodes=told, now=SOON)
    assert (waiting.removed, waiting.drains, waiting.requeue_at) == ((), (), DRAINED)
    empty = {"b": PoolNode("uid-node-b", closed=True, ends_at=SOON)}
    assert run(plan.record, A, B, wanted=1, nodes=empty, now=SOON).removed == ("b",)
    assert run(plan.record, A, B, wanted=1, nodes=told, now=DRAINED).removed == ("b",)
    assert run(plan.record, A, wanted=1, nodes={}).record.leaving == (), "forgotten when its object is gone"


NOT_TOLD: dict[str, PoolNode] = {
    "a hint on a cordoned node": PoolNode("uid-node-b", closed=True, pods=1),
    "a later end than that of the machine": PoolNode(
        "uid-node-b", closed=True, ends_at=DRAINED + timedelta(seconds=1), pods=1
    ),
    "an end, but the node takes new pods": PoolNode("uid-node-b", ends_at=SOON, pods=1),
    "a hint on a cordoned node that is empty": PoolNode("uid-node-b", closed=True),
}


@pytest.mark.parametrize("node", NOT_TOLD.values(), ids=NOT_TOLD.keys())
def test_pods_are_told_though_the_node_announces_something_else(node: PoolNode) -> None:
    record = run(TWO, A, B, wanted=1, nodes=IDLE).record
    plan = run(record, A, B, wanted=1, nodes={"b": node})
    assert [(drain.node, drain.until) for drain in plan.drains] == [("b", DRAINED)]
    assert plan.removed == ()


def test_surplus_machine_without_pods_is_closed_for_new_ones_before_it_is_deleted() -> None:
    plan = run(TWO, A, B, wanted=0, nodes=IDLE)
    assert (sorted(drain.node for drain in plan.drains), plan.removed) == (["a", "b"], ())


def test_surplus_machine_whose_end_is_announced_earlier_goes_then_unless_that_is_withdrawn() -> None:
    record = run(TWO, A, B, wanted=1, nodes=IDLE).record
    noticed = machine("b", problem="Preempted", deadline=SOON)
    busy = {"b": PoolNode("uid-node-b", closed=True, ends_at=SOON, pods=1)}
    plan = run(record, A, noticed, wanted=1, nodes=busy)
    assert plan.requeue_at == SOON
    assert run(plan.record, A, B, wanted=1, nodes=busy).requeue_at == DRAINED


def test_a_machine_whose_notice_is_withdrawn_is_drained_like_one_that_is_not_needed() -> None:
    record = run(TWO, A, LOSSES["its end is announced"]).record
    busy = {"b": PoolNode("uid-node-b", pods=8)}
    plan = run(record, A, B, nodes=busy)
    assert leaving(plan) == {"b": "Surplus"}
    assert (names(plan), plan.removed) == (names(run(record, A, B)), ())
    assert [(drain.node, drain.until) for drain in plan.drains] == [("b", DRAINED)]
    assert [event.reason for event in plan.events] == ["MachineDraining"]
    assert run(plan.record, A, B, nodes=busy, now=SOON).removed == (), "the deadline of the notice is void"
    assert run(plan.record, A, B, nodes=busy, now=DRAINED).removed == ("b",)


def test_a_machine_with_a_notice_follows_its_deadline_when_that_is_changed() -> None:
    record = run(TWO, A, LOSSES["its end is announced"]).record
    busy = {"b": PoolNode("uid-node-b", closed=True, ends_at=SOON, pods=1)}
    later = machine("b", problem="Maintenance", deadline=DRAINED)
    plan = run(record, A, later, nodes=busy, now=SOON)
    assert (plan.removed, plan.requeue_at) == ((), DRAINED)


def test_a_node_that_is_not_the_machine_is_left_alone_until_the_machine_goes() -> None:
    forged = PoolRecord(leaving=(Leaving("b", Why.SURPLUS, "uid-b", "control-plane", DRAINED),))
    for pods in (0, 3):
        nodes = {"control-plane": PoolNode("uid-control-plane", machine="other", pods=pods)}
        joined = machine("b", node="control-plane")
        plan = run(forged, joined, wanted=0, nodes=nodes)
        assert (plan.drains, plan.removed, plan.requeue_at) == ((), (), DRAINED)
        assert run(forged, joined, wanted=0, nodes=nodes, now=DRAINED).drains == ()


def test_object_of_the_pool_that_is_not_recorded_is_given_up_with_time_to_save() -> None:
    stranger = machine("c")
    plan = run(TWO, A, B, stranger)
    assert (names(plan), leaving(plan), plan.removed) == (["a", "b"], {"c": "Surplus"}, ())
    assert plan.record.leaving == (Leaving("c", Why.SURPLUS, "uid-c", "c", DRAINED),)


def test_a_lost_record_is_rebuilt_from_the_objects_before_anything_else_is_decided() -> None:
    stamp = int(NOW.timestamp())
    old = machine("p-0-old", index=0, stamp=stamp - 60, problem="Preempted", deadline=SOON)
    new = machine("p-0-new", index=0, stamp=stamp - 30)
    noticed = machine("p-1", index=1, stamp=stamp + 5, problem="Preempted", deadline=SOON)
    nameless = machine("nameless")
    plan = run(None, new, noticed, old, nameless, wanted=2)
    assert (plan.removed, plan.drains, plan.requeue_at) == ((), (), NOW)
    assert [(each.index, each.machine) for each in plan.record.slots] == [(0, "p-0-new"), (1, "p-1")]
    assert plan.record.slots[0].requested_at == NOW - timedelta(seconds=30)
    assert plan.record.last_stamp == stamp + 5, "names that may be known to somebody are not used again"
    later = run(plan.record, new, noticed, old, nameless, wanted=2)
    assert names(later) == ["p-0-new", "p-1-6"]
    assert leaving(later) == {"p-1": "Lost", "p-0-old": "Surplus", "nameless": "Surplus"}


def test_no_node_is_empty_where_pods_of_others_are_not_seen() -> None:
    lost = Leaving("b", Why.LOST, "uid-b", "b", SOON)
    surplus = PoolRecord(leaving=(lost, Leaving("a", Why.SURPLUS, "uid-a", "a", DRAINED)))
    empty = {name: PoolNode(f"uid-node-{name}", closed=True, ends_at=SOON) for name in ("a", "b")}
    seen = (A, LOSSES["its end is announced"])
    assert run(surplus, *seen, wanted=0, nodes=empty).removed == ("b", "a")
    plan = run(surplus, *seen, wanted=0, nodes=empty, sees_all_pods=False)
    assert (plan.removed, plan.requeue_at) == ((), SOON)
    assert run(surplus, *seen, wanted=0, nodes=empty, sees_all_pods=False, now=DRAINED).removed == ("b", "a")
    gone = run(surplus, *seen, wanted=0, nodes=dict.fromkeys(("a", "b")), sees_all_pods=False)
    assert gone.removed == ("b", "a")


def test_deletion_is_told_once() -> None:
    record = run(TWO, A, B, wanted=1, nodes=IDLE).record
    nodes = {"b": PoolNode("uid-node-b", closed=True, ends_at=SOON)}
    first = run(record, A, B, wanted=1, nodes=nodes)
    second = run(first.record, A, B, wanted=1, nodes=nodes)
    assert [event.reason for event in first.events] == ["MachineReleased"]
    assert (second.events, second.removed) == ((), ("b",))


def test_growing_uses_the_lowest_free_indexes() -> None:
    plan = run(PoolRecord(slots=(slot(1, "b"),)), B, wanted=3)
    assert [each.index for each in plan.record.slots] == [0, 1, 2]
