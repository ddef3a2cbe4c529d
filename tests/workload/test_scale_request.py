"""Tests which request is next, and which replicas are added or removed."""

import pytest

from argosy.workload.index_set import IndexSet
from argosy.workload.scale_request import ScaleRequest, ScaleState, last_to_go, next_to_add
from tests.support.scale_simulator import indexes
from tests.support.workloads import later


def request(kind: str, name: str, seconds: int, *, urgent: bool = False) -> ScaleRequest:
    def select(state: ScaleState) -> IndexSet | str:
        return state.members

    return ScaleRequest(
        id=f"uid-{name}",
        kind="Out" if kind == "ScaleOut" else "In",
        name=name,
        created=later(seconds),
        select=select,
        urgent=urgent,
    )


QUEUES = {
    "two requests: the older one": ([request("ScaleIn", "b", 2), request("ScaleIn", "c", 1)], "c"),
    "older request to remove, newer one to add: the older one": (
        [request("ScaleOut", "a", 2), request("ScaleIn", "b", 1)],
        "b",
    ),
    "created in the same second: the one that adds": (
        [request("ScaleIn", "a", 1), request("ScaleOut", "b", 1)],
        "b",
    ),
    "same kind and second: by name": ([request("ScaleIn", "b", 1), request("ScaleIn", "a", 1)], "a"),
    "urgent request: ahead of all others": (
        [request("ScaleOut", "a", 1), request("ScaleIn", "b", 5, urgent=True)],
        "b",
    ),
    "two urgent requests: the older one": (
        [request("ScaleIn", "a", 2, urgent=True), request("ScaleIn", "b", 1, urgent=True)],
        "b",
    ),
}


@pytest.mark.parametrize(("queue", "want"), QUEUES.values(), ids=QUEUES)
def test_which_request_is_next(queue: list[ScaleRequest], want: str) -> None:
    for ordered in (queue, queue[::-1]):
        assert min(ordered, key=lambda item: item.order).name == want


CHOICES = {
    "highest members: removed first": ((0, 1, 2), {}, 1, (2,)),
    "members that are not live: removed first": ((0, 2), {}, 2, (1, 2)),
    "lower deletion cost: removed first": ((0, 1, 2), {0: -5, 2: 5}, 1, (0,)),
    "equal deletion cost: highest index first": ((0, 1, 2), {0: 5, 1: 5, 2: 5}, 1, (2,)),
}


@pytest.mark.parametrize(("live", "costs", "count", "want"), CHOICES.values(), ids=CHOICES)
def test_the_cheapest_members_go_first(
    live: tuple[int, ...], costs: dict[int, int], count: int, want: tuple[int, ...]
) -> None:
    state = ScaleState(indexes(0, 1, 2), indexes(*live), deletion_costs=costs)
    assert tuple(last_to_go(state, count)) == want


def test_new_indexes_follow_the_highest_member_and_skip_those_in_use() -> None:
    state = ScaleState(indexes(0, 2), indexes(0, 2), unavailable=indexes(0, 1, 2, 4))
    assert tuple(next_to_add(state, 2)) == (3, 5)
