"""Registers AresJobs: the dialect with everything that this API has beyond a translation.

Pods of roles that are never restarted, and all pods of jobs with checkpoints, are named
`<job>-<role>-<index>`. Other pods have five letters more, derived from attempt and replacement, so that a new
pod can be created while the old one still terminates.
"""

import hashlib

import msgspec
from msgspec.structs import replace

from argosy.dialects.ares import adoption, events, injection
from argosy.dialects.ares.dialect import AresJobDialect
from argosy.dialects.ares.initializers import Initializers, LocateObserver, operator_endpoint
from argosy.dialects.ares.spec_patch import propagated, spec_patch
from argosy.dialects.base import Adoption, JobApi, bare_workload
from argosy.dialects.checkpoints import CHILD_KINDS, on_demand_children
from argosy.dialects.templates import without_details
from argosy.frameworks.base import Injection
from argosy.kinds.aresjob import PROPAGATED_ANNOTATIONS, AresJob
from argosy.kinds.checkpoint_spec import CheckpointSpec
from argosy.workload.model import DEFAULT_CLUSTER_DOMAIN, CleanupPolicy, Limits, Role, Ttl, Workload


def ares_job_api(
    ttl_after_succeeded: float | None = None,
    cluster_domain: str = DEFAULT_CLUSTER_DOMAIN,
    initializers: Initializers = Initializers(),
    locate: LocateObserver = operator_endpoint,
) -> JobApi[AresJob]:
    """Return what is registered for AresJobs."""

    def inject(workload: Workload, role: Role, index: int) -> Injection:
        return injection.inject(workload, role, index, initializers, locate)

    return JobApi(
        dialect=AresJobDialect(ttl_after_succeeded, cluster_domain),
        inject=inject,
        empty=lambda metadata: AresJob(metadata, {}),
        pod_name=pod_name,
        status_events=events.status_events,
        action_events=events.action_events,
        spec_patch=spec_patch,
        adoption=Adoption(adoption.adopted_record, adoption.adopted_replica),
        compact_finished=_compact_finished,
        minimal_workload=minimal_workload,
        propagated_annotations=PROPAGATED_ANNOTATIONS,
        child_kinds=CHILD_KINDS,
        on_demand_children=on_demand_children(checkpoint_of),
        write_time_field="last_reconcile_time",
    )


def pod_name(workload: Workload, role: str, index: int, attempt: int, replacement: int) -> str:
    """Return the name of a pod; different for each replacement where old and new pods may overlap."""
    host = workload.hostname(role, index)
    if not workload.allows_surge(workload.roles[role]):
        return host
    digest = hashlib.sha256(f"{workload.uid}/{attempt}/{replacement}".encode()).hexdigest()
    return f"{host}-{digest[:5]}"


def checkpoint_of(obj: AresJob) -> CheckpointSpec | None:
    """Return the checkpoint policy of a job; None also if it is invalid."""
    written = obj.spec.get("checkpoint")
    try:
        return msgspec.convert(written, CheckpointSpec | None)
    except msgspec.ValidationError:
        return None


def minimal_workload(obj: AresJob) -> Workload:
    """Return identity, cleanup policy and times to live of a job whose spec is invalid elsewhere."""
    policy = obj.spec.get("runPolicy")
    run = policy if isinstance(policy, dict) else {}
    cleanup = run.get("cleanPodPolicy", CleanupPolicy.NONE.value) or CleanupPolicy.ALL.value
    ttl, children_ttl = run.get("ttlSecondsAfterFinished"), obj.spec.get("ttlSecondsAfterFailed")
    return replace(
        bare_workload(obj.metadata, AresJob.resource),
        limits=Limits(ttl=Ttl(_seconds(ttl), _seconds(ttl)), children_ttl=Ttl(None, _seconds(children_ttl))),
        cleanup=CleanupPolicy(cleanup) if cleanup in tuple(CleanupPolicy) else CleanupPolicy.NONE,
        propagated=propagated(obj.metadata),
    )


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int) and value >= 0 else None


def _compact_finished(obj: AresJob) -> AresJob:
    roles = obj.spec.get("roleSpecs")
    if obj.status.completion_time is None or not isinstance(roles, dict):
        return obj
    compact = {
        name: {**role, "template": without_details(role.get("template"))}
        for name, role in roles.items()
        if isinstance(role, dict)
    }
    return replace(obj, spec={**obj.spec, "roleSpecs": compact})
