"""Selects the workers that a ScaleIn removes or a ScaleOut adds, or says why that is not possible.

A selection is validated against the present size of the job when its scaler is begun, not before: an older
scaler may have changed it. What is selected is then recorded and never selected again.
"""

from collections.abc import Collection

from msgspec.structs import replace

from argosy.dialects.et.names import worker_index, worker_name
from argosy.kinds.dns_names import service_name_error
from argosy.kinds.text import join_names, pluralize, truncate
from argosy.workload.index_set import IndexSet
from argosy.workload.scale_request import ScaleState, last_to_go, next_to_add

MAX_NAMES = 10
"""Unknown names in one message."""

COUNT_OR_NAMES = ".spec.toDelete.count or .spec.toDelete.podNames, only one of them should be set"
NO_COUNT = ".spec.toAdd.count shouldn't be empty"
COUNT_TOO_SMALL = ".spec.toAdd.count shouldn be greater than 0"
"""The wording is et-operator's."""


def select_for_scale_in(
    job: str, state: ScaleState, *, count: int = 0, names: Collection[str] = (), min_replicas: int = 1
) -> IndexSet | str:
    """Return the workers that a ScaleIn removes, or why it fails; one of count and names must be given.

    With `min_replicas` 0 all workers may be removed, as for a node that is going to be released.
    """
    if bool(names) == (count != 0) or count < 0:
        return COUNT_OR_NAMES
    if names:
        indexes = {name: worker_index(job, name) for name in names}
        if unknown := sorted(name for name, index in indexes.items() if index not in state.members):
            return f"no such worker: {join_names([truncate(name) for name in unknown], MAX_NAMES)}"
        selected = IndexSet.of(index for index in indexes.values() if index is not None)
    else:
        if count >= len(state.live):
            return f".spec.toDelete.count should be less than current replicas {len(state.live)}"
        selected = last_to_go(replace(state, members=state.live), count)
    left = len(state.live - selected)
    if left < min_replicas:
        workers = pluralize(left, "worker")
        return f"only {workers} would be left; must be at least minReplicas {min_replicas}"
    return selected


def select_for_scale_out(
    job: str, state: ScaleState, count: int | None, *, max_replicas: int
) -> IndexSet | str:
    """Return the workers that a ScaleOut adds, or why it fails.

    Names of workers that were removed earlier are used again, unless their Pod or Service still exists, or
    the worker failed: Horovod would not use a host of that name again.
    """
    if count is None:
        return NO_COUNT
    if count <= 0:
        return COUNT_TOO_SMALL
    live = len(state.live)
    if live + count > max_replicas:
        return f".spec.toAdd.count: {live} + {count} workers; must be at most maxReplicas {max_replicas}"
    selected = next_to_add(state, count)
    if error := service_name_error(worker_name(job, selected.highest)):
        return f"the name of the new worker {error}"
    return selected
