"""Selects workers: those that a ScaleIn removes, a ScaleOut adds or a loss replaces, and the next scaler.

A selection is validated against the present size of the job when its scaler is begun, not before: an older
scaler may have changed it. What is selected is then recorded and never selected again.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count as count_from
from itertools import islice

from msgspec import Struct

from argosy.dialects.et.names import worker_name
from argosy.kinds.dns_names import service_name_error
from argosy.kinds.labels import POD_DELETION_COST
from argosy.kinds.text import join_names, pluralize, truncate

MAX_NAMES = 10
"""Unknown names in one message."""

SIGNAL_EXIT_CODES = range(128, 256)
"""Exit codes after which a worker with restartPolicy ExitCode is replaced."""

DELETED = "Deleted"
"""What takes the place of the phase of a lost worker that has no pod any more."""

COUNT_OR_NAMES = ".spec.toDelete.count or .spec.toDelete.podNames, only one of them should be set"
NO_COUNT = ".spec.toAdd.count shouldn't be empty"
COUNT_TOO_SMALL = ".spec.toAdd.count shouldn be greater than 0"
"""The wording is et-operator's."""

_INT32 = re.compile(r"-?(0|[1-9][0-9]{0,9})")


class Worker(Struct, frozen=True):
    """A worker in `status.targetWorkers`."""

    name: str
    index: int
    live: bool = True
    """Whether its pod is Pending or Running, and not terminating."""
    deletion_cost: int = 0
    """By the annotation of its pod; workers with lower cost are removed first."""


class InvalidSelection(Struct, frozen=True):
    """Why a scaler fails before it has changed anything."""

    message: str


class QueuedScaler(Struct, frozen=True):
    """A scaler of a job that has not ended."""

    kind: str
    """ScaleIn or ScaleOut."""
    name: str
    created_at: datetime
    urgent: bool = False
    """Set for the ScaleIn that the operator creates for a node that is going to be released."""


def next_scaler(queue: Iterable[QueuedScaler]) -> QueuedScaler | None:
    """Return the scaler that is executed next: an urgent one, or else the oldest."""
    return min(queue, key=_queue_order, default=None)


def select_for_scale_in(
    workers: Sequence[Worker], *, count: int = 0, names: Collection[str] = (), min_replicas: int = 1
) -> tuple[Worker, ...] | InvalidSelection:
    """Return the workers that a ScaleIn removes, by index; one of count and names must be given.

    With `min_replicas` 0 all workers may be removed, as for a node that is going to be released.
    """
    if bool(names) == (count != 0) or count < 0:
        return InvalidSelection(COUNT_OR_NAMES)
    live = [worker for worker in workers if worker.live]
    if names:
        names = frozenset(names)
        if unknown := sorted(names - {worker.name for worker in workers}):
            listed = join_names([truncate(name) for name in unknown], MAX_NAMES)
            return InvalidSelection(f"no such worker: {listed}")
        selected = [worker for worker in workers if worker.name in names]
    else:
        if count >= len(live):
            error = f".spec.toDelete.count should be less than current replicas {len(live)}"
            return InvalidSelection(error)
        selected = sorted(live, key=_removal_order)[:count]
    left = len(live) - sum(worker.live for worker in selected)
    if left < min_replicas:
        return InvalidSelection(
            f"only {pluralize(left, 'worker')} would be left; must be at least minReplicas {min_replicas}"
        )
    return tuple(sorted(selected, key=lambda worker: worker.index))


def select_for_scale_out(
    job: str,
    count: int | None,
    *,
    live: int,
    max_replicas: int,
    target: Collection[int],
    taken: Collection[int] = (),
) -> tuple[str, ...] | InvalidSelection:
    """Return the names of the workers that a ScaleOut adds to a job with this number of live workers."""
    if count is None:
        return InvalidSelection(NO_COUNT)
    if count <= 0:
        return InvalidSelection(COUNT_TOO_SMALL)
    if live + count > max_replicas:
        error = f".spec.toAdd.count: {live} + {count} workers; must be at most maxReplicas {max_replicas}"
        return InvalidSelection(error)
    names = names_for_scale_out(job, count, target=target, taken=taken)
    if error := service_name_error(names[-1]) or "":
        return InvalidSelection(f"the name of the new worker {error}")
    return names


def names_for_scale_out(
    job: str, count: int, *, target: Collection[int], taken: Collection[int] = ()
) -> tuple[str, ...]:
    """Return the names of new workers, which follow those in `target`.

    Names of workers that were removed earlier are used again, unless their index is `taken`: its Pod or
    Service still exists, or the worker failed, and Horovod would not use a host of that name again.
    """
    return tuple(worker_name(job, index) for index in next_indexes(count, target=target, taken=taken))


def next_indexes(count: int, *, target: Collection[int], taken: Collection[int] = ()) -> tuple[int, ...]:
    """Return the first free indexes after the highest one in `target`, for new workers or replacements."""
    skipped = frozenset(taken)
    free = (index for index in count_from(max(target, default=-1) + 1) if index not in skipped)
    return tuple(islice(free, count))


def should_replace(policy: str, phase: str, exit_code: int | None = None) -> bool:
    """Return True if a lost worker is replaced, by its restartPolicy and the phase of its pod.

    The exit code is that of its first terminated container. A pod that failed without one was evicted or
    disrupted, which counts as a signal.
    """
    if policy == "Always":
        return phase in ("Failed", "Unknown", "Succeeded", DELETED)
    if phase != "Failed":
        return False
    if policy == "ExitCode":
        return exit_code is None or exit_code in SIGNAL_EXIT_CODES
    return policy == "OnFailure"


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """Return the cost of deleting a pod; 0 if it is not set or not a number."""
    text = annotations.get(POD_DELETION_COST, "")
    cost = int(text) if _INT32.fullmatch(text) else 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _queue_order(scaler: QueuedScaler) -> tuple[bool, datetime, bool, str]:
    return not scaler.urgent, scaler.created_at, scaler.kind != "ScaleOut", scaler.name


def _removal_order(worker: Worker) -> tuple[int, int]:
    return worker.deletion_cost, -worker.index
