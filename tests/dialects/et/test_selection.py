"""The pure parts of acceptance cases 23, 26, 28, 32 to 35 and 40, and the rules around them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from argosy.dialects.et import messages
from argosy.dialects.et.names import scaler_reference, worker_index, worker_name
from argosy.dialects.et.selection import (
    COUNT_OR_NAMES,
    InvalidSelection,
    QueuedScaler,
    Worker,
    deletion_cost,
    names_for_scale_out,
    next_indexes,
    next_scaler,
    select_for_scale_in,
    select_for_scale_out,
    should_replace,
)
from argosy.kinds.labels import POD_DELETION_COST

START = datetime(2030, 1, 1, tzinfo=UTC)


def workers(*indexes: int, dead: Sequence[int] = (), costs: dict[int, int] | None = None) -> list[Worker]:
    return [
        Worker(worker_name("j", index), index, index not in dead, (costs or {}).get(index, 0))
        for index in indexes
    ]


def names(*indexes: int) -> list[str]:
    return [worker_name("j", index) for index in indexes]


@dataclass(frozen=True)
class ScaleIn:
    workers: list[Worker]
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
        case.workers, count=case.count, names=case.names, min_replicas=case.min_replicas
    )
    assert not isinstance(selected, InvalidSelection), selected
    assert [worker.index for worker in selected] == want


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
        case.workers, count=case.count, names=case.names, min_replicas=case.min_replicas
    )
    assert selected == InvalidSelection(want)


def test_message_about_names_does_not_grow_with_them() -> None:
    selected = select_for_scale_in(workers(0), names=[f"{index}{'x' * 1000}" for index in range(10_000)])
    assert isinstance(selected, InvalidSelection)
    assert len(selected.message) < 1_000


def test_message_of_a_failed_scale_in_begins_as_specified() -> None:
    selected = select_for_scale_in(workers(0, 1), count=5)
    assert isinstance(selected, InvalidSelection)
    message = messages.selection_failed(scaler_reference("ScaleIn", "default", "s"), selected.message)
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
def test_names_that_a_scale_out_adds(case: ScaleOut, want: list[int]) -> None:
    added = names_for_scale_out("j", case.count, target=case.target, taken=case.taken)
    assert list(added) == names(*want)
    assert [worker_index("j", name) for name in added] == want
    selected = select_for_scale_out(
        "j", case.count, live=len(case.target), max_replicas=9, target=case.target, taken=case.taken
    )
    assert selected == added


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
    selected = select_for_scale_out("j", count, live=live, max_replicas=9, target=range(live))
    assert selected == InvalidSelection(want)


def test_dead_workers_make_room_for_a_scale_out() -> None:
    selected = select_for_scale_out("j", 2, live=1, max_replicas=3, target=[0, 1, 2])
    assert selected == ("j-worker-3", "j-worker-4")


def test_scale_out_to_a_name_that_is_too_long_fails() -> None:
    job = "x" * 54
    selected = select_for_scale_out(job, 2, live=9, max_replicas=99, target=range(9))
    assert isinstance(selected, InvalidSelection)
    assert selected.message.startswith("the name of the new worker 'xxx")


def test_replacements_follow_target_workers_and_those_of_a_running_scale_out() -> None:
    """Case 22: worker-1 lost of [w0, w1] -> worker-2; worker-1 is not used again."""
    assert next_indexes(1, target=[0, 1], taken=[1]) == (2,)
    assert next_indexes(2, target=[0, 1, *(2, 3)], taken=[1]) == (4, 5)


REPLACED: dict[str, tuple[str, str, int | None, bool]] = {
    **{
        f"23. ExitCode, exit {code}: replaced": ("ExitCode", "Failed", code, True) for code in (137, 128, 255)
    },
    **{
        f"23. ExitCode, exit {code}: not replaced": ("ExitCode", "Failed", code, False)
        for code in (1, 0, 127, 256)
    },
    "ExitCode, failed without an exit code (evicted): replaced": ("ExitCode", "Failed", None, True),
    "ExitCode, deleted: not replaced": ("ExitCode", "Deleted", None, False),
    "ExitCode, succeeded: not replaced": ("ExitCode", "Succeeded", 0, False),
    **{f"Never, {phase}: not replaced": ("Never", phase, 137, False) for phase in ("Failed", "Deleted")},
    **{
        f"Always, {phase}: replaced": ("Always", phase, 0, True)
        for phase in ("Failed", "Unknown", "Succeeded", "Deleted")
    },
    "Always, Running: not replaced": ("Always", "Running", None, False),
    "OnFailure, failed: replaced": ("OnFailure", "Failed", 1, True),
    "OnFailure, deleted: not replaced": ("OnFailure", "Deleted", None, False),
    "OnFailure, Unknown: not replaced": ("OnFailure", "Unknown", None, False),
    "OnFailure, succeeded: not replaced": ("OnFailure", "Succeeded", 0, False),
}


@pytest.mark.parametrize(("policy", "phase", "code", "want"), REPLACED.values(), ids=REPLACED.keys())
def test_whether_a_lost_worker_is_replaced(policy: str, phase: str, code: int | None, want: bool) -> None:
    assert should_replace(policy, phase, code) is want


def queued(kind: str, name: str, seconds: int, *, urgent: bool = False) -> QueuedScaler:
    return QueuedScaler(kind, name, START + timedelta(seconds=seconds), urgent)


QUEUES: dict[str, tuple[list[QueuedScaler], str | None]] = {
    "no scaler: none": ([], None),
    "40. two waiting scalers: the older one": ([queued("ScaleIn", "b", 2), queued("ScaleIn", "c", 1)], "c"),
    "40. older ScaleIn and newer ScaleOut: the older one": (
        [queued("ScaleOut", "a", 2), queued("ScaleIn", "b", 1)],
        "b",
    ),
    "created in the same second: ScaleOut first": (
        [queued("ScaleIn", "a", 1), queued("ScaleOut", "b", 1)],
        "b",
    ),
    "same kind and second: by name": ([queued("ScaleIn", "b", 1), queued("ScaleIn", "a", 1)], "a"),
    "release of a node: ahead of all others": (
        [queued("ScaleOut", "a", 1), queued("ScaleIn", "j-release-1", 5, urgent=True)],
        "j-release-1",
    ),
    "two releases: the older one": (
        [queued("ScaleIn", "a", 2, urgent=True), queued("ScaleIn", "b", 1, urgent=True)],
        "b",
    ),
}


@pytest.mark.parametrize(("queue", "want"), QUEUES.values(), ids=QUEUES.keys())
def test_which_scaler_is_next(queue: list[QueuedScaler], want: str | None) -> None:
    picked = next_scaler(queue)
    assert (picked.name if picked else None) == want
    assert next_scaler(reversed(queue)) == picked


def test_40_the_second_scaler_is_validated_against_the_new_size() -> None:
    """Two ScaleIns of two workers each, of three: the first is executed, the second fails."""
    present = workers(0, 1, 2)
    first = select_for_scale_in(present, count=2)
    assert not isinstance(first, InvalidSelection)
    left = [worker for worker in present if worker not in first]
    assert select_for_scale_in(left, count=2) == InvalidSelection(
        ".spec.toDelete.count should be less than current replicas 1"
    )


COSTS = {
    "no annotation: 0": ({}, 0),
    "positive cost: the cost": ({POD_DELETION_COST: "100"}, 100),
    "negative cost: the cost": ({POD_DELETION_COST: "-100"}, -100),
    **{
        f"{text!r}: 0, as it is no number of 32 bits": ({POD_DELETION_COST: text}, 0)
        for text in ("", "many", "1.5", "+1", "01", "1_000", "٣", "2147483648", "9" * 5000)
    },
}


@pytest.mark.parametrize(("annotations", "want"), COSTS.values(), ids=COSTS.keys())
def test_deletion_cost_of_a_pod(annotations: dict[str, str], want: int) -> None:
    assert deletion_cost(annotations) == want
