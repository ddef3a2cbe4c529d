"""Reads ScaleIns and ScaleOuts as requests to scale their job."""

from argosy.dialects.et import names
from argosy.dialects.et.scaler import Scaler, is_bound, is_finished, read_spec
from argosy.dialects.et.selection import select_for_scale_in, select_for_scale_out
from argosy.dialects.et.spec import (
    drain_timeout_seconds,
    script_timeout_seconds,
    start_timeout_seconds,
)
from argosy.dialects.et.validation import scaler_error
from argosy.kinds.scalers import ScaleIn, ScaleInSpec, ScaleInStatus, ScaleOutSpec, ToDelete
from argosy.kinds.trainingjob import WORKER
from argosy.workload.index_set import EMPTY, MAX_INDEX, IndexSet
from argosy.workload.model import Problem, Workload
from argosy.workload.scale_request import ScaleRequest, ScaleState, Script


def job_name(obj: Scaler) -> str:
    """Return the name of the job that a scaler is for; empty if it has none."""
    spec = read_spec(obj)
    return "" if isinstance(spec, Problem) else spec.selector.name


def asks(obj: Scaler) -> object:
    """Return what `to_request` depends on, apart from the job; None if nobody owns the scaler yet.

    A scaler that shows its result is left out of the job's next write, which is no reason to reconcile it.
    """
    meta, status = obj.metadata, obj.status
    if not meta.owner_references:
        return None
    shown = status.to_delete_pods if isinstance(status, ScaleInStatus) else status.add_pods
    owners = tuple(owner.uid for owner in meta.owner_references)
    return meta.uid, meta.generation, meta.deletion_timestamp, owners, tuple(shown)


def to_request(obj: Scaler, workload: Workload) -> ScaleRequest | None:
    """Return the request of a scaler; None if it is finished, is being deleted or is not valid.

    One that is not bound to the job yet is none either: it is shown as Created before it is executed, and one
    that is bound to a deleted job of the same name is deleted with that.
    """
    meta, spec = obj.metadata, read_spec(obj)
    if isinstance(spec, Problem) or scaler_error(spec) or is_finished(obj):
        return None
    if not is_bound(obj, workload.uid):
        return None
    if meta.deletion_timestamp is not None or meta.creation_timestamp is None:
        return None
    timeout = drain_timeout_seconds(spec) if isinstance(spec, ScaleInSpec) else start_timeout_seconds(spec)
    return ScaleRequest(
        id=meta.uid,
        kind="In" if isinstance(obj, ScaleIn) else "Out",
        name=meta.name,
        created=meta.creation_timestamp,
        select=lambda state: _select(spec, workload, state),
        role=WORKER,
        shown=_shown(obj, spec, workload),
        timeout=float(timeout),
        script=_script(spec),
    )


def _select(spec: ScaleInSpec | ScaleOutSpec, workload: Workload, state: ScaleState) -> IndexSet | str:
    elastic = workload.roles[WORKER].elastic
    if isinstance(spec, ScaleOutSpec):
        count = spec.to_add.count if spec.to_add else None
        most = elastic.max if elastic else 0
        return select_for_scale_out(workload.name, state, count, max_replicas=most)
    wanted = spec.to_delete or ToDelete()
    least = elastic.min if elastic else 1
    return select_for_scale_in(
        workload.name, state, count=wanted.count, names=wanted.pod_names, min_replicas=least
    )


def _shown(obj: Scaler, spec: ScaleInSpec | ScaleOutSpec, workload: Workload) -> IndexSet:
    """Return the indexes of the workers that the status shows; none if the spec asks for others."""
    shown = obj.status.to_delete_pods if isinstance(obj, ScaleIn) else obj.status.add_pods
    found = [names.worker_index(workload.name, pod) for pod in shown]
    indexes = [index for index in found if index is not None and index <= MAX_INDEX]
    is_choice = len(indexes) == len(shown) and _is_choice(spec, shown)
    return IndexSet.of(indexes) if is_choice else EMPTY


def _is_choice(spec: ScaleInSpec | ScaleOutSpec, pods: list[str]) -> bool:
    """Return True if these workers may have been chosen for the spec."""
    if isinstance(spec, ScaleOutSpec):
        return spec.to_add is not None and spec.to_add.count == len(pods)
    wanted = spec.to_delete or ToDelete()
    return set(wanted.pod_names) == set(pods) if wanted.pod_names else wanted.count == len(pods)


def _script(spec: ScaleInSpec | ScaleOutSpec) -> Script | None:
    if not spec.script:
        return None
    env = tuple((variable.name, variable.value) for variable in spec.env)
    return Script(spec.script, env, float(script_timeout_seconds(spec)), spec.backoff_limit)
