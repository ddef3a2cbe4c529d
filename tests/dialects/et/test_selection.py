"""The pure parts of acceptance cases 26, 28, 32 to 35 and 40, and the rules around them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from argosy.dialects.et import messages
from argosy.dialects.et.names import scaler_reference, worker_name
from argosy.dialects.et.selection import COUNT_OR_NAMES, select_for_scale_in, select_for_scale_out
from argosy.workload.index_set import IndexSet
from argosy.workload.scale_request import ScaleState


def workers(*indexes: int, dead: Sequence[int] = (), costs: dict[int, int] | None = None) -> ScaleState:
    members = IndexSet.of(indexes)
    return ScaleState(members, members - IndexSet.of(dead), deletion_costs=costs or {})


def names(*indexes: int) -> list[str]:
    return [worker_name("j", index) for index in indexes]


@dataclass(frozen=True)
class ScaleIn:
    workers: ScaleState
    count: int = 0
    names: Sequence[str] = ()
    min_replicas: int = 1


SCALE_IN: dict[str, tuple[ScaleIn, list[int]]] = {
    "31. 3 workers, count 1: the highest index": (ScaleIn(workers(0, 1, 2), 1), [2]),
    "count 2: the highest indexes, in order": (ScaleIn(workers(0, 1, 2, 3), 2), [2, 3]),
    "workers in any order: the highest indexes": (ScaleIn(workers(10, 2, 9, 0), 2), [9, 10]),
    "count with a dead worker of the highest index: a live one": (
        ScaleIn(workers(0, 1, 2, dead=[2]), 1),
        [1],
    ),
    "32. podNames [w1] of 3: only w1": (ScaleIn(workers(0, 1, 2), names=names(1)), [1]),
    "names twice: once": (ScaleIn(workers(0, 1, 2), names=names(1, 1, 0, 1)), [0, 1]),
    "name of a dead worker: that worker": (ScaleIn(workers(0, 1, 2, dead=[2]), names=names(2)), [2]),
    "name of worker 1 beside worker 10: worker 1": (ScaleIn(workers(0, 1, 10), names=names(1)), [1]),
    "names down to minReplicas: selected": (
        ScaleIn(workers(0, 1, 2), names=names(2), min_replicas=2),
        [2],
    ),
    "name of a dead worker beside minReplicas live ones: that worker": (
        ScaleIn(workers(0, 1, 2, dead=[2]), names=names(2), min_replicas=2),
        [2],
    ),
    "lower deletion cost: goes first": (ScaleIn(workers(0, 1, 2, costs={0: -1}), 1), [0]),
    "higher deletion cost: stays": (ScaleIn(workers(0, 1, 2, costs={2: 5}), 1), [1]),
    "equal deletion cost: highest index": (ScaleIn(workers(0, 1, 2, costs={0: 3, 1: 3, 2: 3}), 1), [2]),
    "deletion cost does not matter for names": (
        ScaleIn(workers(0, 1, 2, costs={2: -9}), names=names(0)),
        [0],
    ),
    "all workers of a node that is released, minReplicas 0: all": (
        ScaleIn(workers(0, 1), names=names(0, 1), min_replicas=0),
        [0, 1],
    ),
}


@pytest.mark.parametrize(("case", "want"), SCALE_IN.values(), ids=SCALE_IN.keys())
def test_workers_that_a_scale_in_removes(case: ScaleIn, want: list[int]) -> None:
    selected = select_for_scale_in(
        "j", case.workers, count=case.count, names=case.names, min_replicas=case.min_replicas
    )
    assert selected == IndexSet.of(want)


INVALID_SCALE_IN: dict[str, tuple[ScaleIn, str]] = {
    "34. no count and no names, or toDelete absent: error": (ScaleIn(workers(0, 1)), COUNT_OR_NAMES),
    "34. count and names: error": (ScaleIn(workers(0, 1, 2), 1, names(2)), COUNT_OR_NAMES),
    "34. negative count and names: error": (ScaleIn(workers(0, 1, 2), -1, names(2)), COUNT_OR_NAMES),
    "34. negative count: error": (ScaleIn(workers(0, 1), -1), COUNT_OR_NAMES),
    "33. count equal to the number of workers: error": (
        ScaleIn(workers(0, 1), 2),
        ".spec.toDelete.count should be less than current replicas 2",
    ),
    "33. count above the number of workers: error": (
        ScaleIn(workers(0, 1), 10**30),
        ".spec.toDelete.count should be less than current replicas 2",
    ),
    "33. count equal to the number of live workers: error": (
        ScaleIn(workers(0, 1, 2, dead=[1]), 2),
        ".spec.toDelete.count should be less than current replicas 2",
    ),
    "unknown names: error with those names only": (
        ScaleIn(workers(0, 1), names=["j-worker-1", "j-worker-7", "other"]),
        "no such worker: j-worker-7 and other",
    ),
    "name that only begins like a worker's: error": (
        ScaleIn(workers(0, 10), names=["j-worker-1"]),
        "no such worker: j-worker-1",
    ),
    "35. count leaves fewer than minReplicas: error with both numbers": (
        ScaleIn(workers(0, 1, 2), 2, min_replicas=2),
        "only 1 worker would be left; must be at least minReplicas 2",
    ),
    "35. names leave fewer than minReplicas: error with both numbers": (
        ScaleIn(workers(0, 1, 2, 3), names=names(0, 1), min_replicas=3),
        "only 2 workers would be left; must be at least minReplicas 3",
    ),
    "35. names of all workers: error": (
        ScaleIn(workers(0, 1), names=names(0, 1)),
        "only 0 workers would be left; must be at least minReplicas 1",
    ),
    "35. dead workers do not count as left: error": (
        ScaleIn(workers(0, 1, 2, dead=[0, 1]), names=names(2)),
        "only 0 workers would be left; must be at least minReplicas 1",
    ),
}


@pytest.mark.parametrize(("case", "want"), INVALID_SCALE_IN.values(), ids=INVALID_SCALE_IN.keys())
def test_scale_in_that_fails_before_anything_is_changed(case: ScaleIn, want: str) -> None:
    selected = select_for_scale_in(
        "j", case.workers, count=case.count, names=case.names, min_replicas=case.min_replicas
    )
    assert selected == want


def test_message_about_names_does_not_grow_with_them() -> None:
    many = [f"{index}{'x' * 1000}" for index in range(10_000)]
    selected = select_for_scale_in("j", workers(0), names=many)
    assert isinstance(selected, str)
    assert len(selected) < 1_000


def test_message_of_a_failed_scale_in_begins_as_specified() -> None:
    selected = select_for_scale_in("j", workers(0, 1), count=5)
    assert isinstance(selected, str)
    message = messages.selection_failed(scaler_reference("ScaleIn", "default", "s"), selected)
    assert message == (
        "ScaleIn:default/s get to delete workers name failed, error:"
        " .spec.toDelete.count should be less than current replicas 2"
    )


@dataclass(frozen=True)
class ScaleOut:
    target: Sequence[int]
    count: int
    taken: Sequence[int] = ()


SCALE_OUT: dict[str, tuple[ScaleOut, list[int]]] = {
    "25. two workers, count 2: the next two": (ScaleOut([0, 1], 2), [2, 3]),
    "26. w0 left after a ScaleIn, count 2: worker-1 again, and worker-2": (ScaleOut([0], 2), [1, 2]),
    "gap below the highest index: not filled": (ScaleOut([0, 5], 2), [6, 7]),
    "index whose Pod or Service still exists: skipped": (ScaleOut([0], 2, taken=[1, 3]), [2, 4]),
    "index of a failed worker: skipped": (ScaleOut([0, 2], 1, taken=[1, 3]), [4]),
    "no worker left: from 0": (ScaleOut([], 2), [0, 1]),
    "indexes in any order: after the highest": (ScaleOut([10, 9], 1), [11]),
}


@pytest.mark.parametrize(("case", "want"), SCALE_OUT.values(), ids=SCALE_OUT.keys())
def test_workers_that_a_scale_out_adds(case: ScaleOut, want: list[int]) -> None:
    target = IndexSet.of(case.target)
    state = ScaleState(target, target, unavailable=IndexSet.of(case.taken))
    assert select_for_scale_out("j", state, case.count, max_replicas=9) == IndexSet.of(want)


INVALID_SCALE_OUT: dict[str, tuple[int | None, int, str]] = {
    "toAdd or count missing: error": (None, 2, ".spec.toAdd.count shouldn't be empty"),
    "count 0: error": (0, 2, ".spec.toAdd.count shouldn be greater than 0"),
    "negative count: error": (-1, 2, ".spec.toAdd.count shouldn be greater than 0"),
    "28. live workers + count above maxReplicas: error with both numbers": (
        8,
        2,
        ".spec.toAdd.count: 2 + 8 workers; must be at most maxReplicas 9",
    ),
    "count of a billion: error": (
        10**9,
        2,
        ".spec.toAdd.count: 2 + 1000000000 workers; must be at most maxReplicas 9",
    ),
}


@pytest.mark.parametrize(("count", "live", "want"), INVALID_SCALE_OUT.values(), ids=INVALID_SCALE_OUT.keys())
def test_scale_out_that_fails_before_anything_is_changed(count: int | None, live: int, want: str) -> None:
    assert select_for_scale_out("j", workers(*range(live)), count, max_replicas=9) == want


def test_dead_workers_make_room_for_a_scale_out() -> None:
    selected = select_for_scale_out("j", workers(0, 1, 2, dead=[1, 2]), 2, max_replicas=3)
    assert selected == IndexSet.of([3, 4])


def test_scale_out_to_a_name_that_is_too_long_fails() -> None:
    job = "x" * 54
    selected = select_for_scale_out(job, workers(*range(9)), 2, max_replicas=99)
    assert isinstance(selected, str)
    assert selected.startswith("the name of the new worker 'xxx")


def test_40_the_second_scaler_is_validated_against_the_new_size() -> None:
    """Two ScaleIns of two workers each, of three: the first is executed, the second fails."""
    present = workers(0, 1, 2)
    first = select_for_scale_in("j", present, count=2)
    assert isinstance(first, IndexSet)
    left = workers(*(present.members - first))
    error = ".spec.toDelete.count should be less than current replicas 1"
    assert select_for_scale_in("j", left, count=2) == error
