"""Builds workloads and observed pods for tests of policies."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from argosy.kinds import labels
from argosy.kinds.meta import ObjectMeta
from argosy.plan.children import Child, KubernetesObject
from argosy.workload.index_set import IndexSet
from argosy.workload.model import (
    CleanupPolicy,
    Elastic,
    Gang,
    Json,
    Limits,
    Phase,
    Quantifier,
    RestartPolicy,
    Role,
    RolePolicy,
    Rules,
    Workload,
)
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import RoleRecord

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
TEMPLATE: Json = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
USUAL = RolePolicy(Quantifier.ANY, Quantifier.ALL)

_LETTERS = {"P": "Pending", "R": "Running", "S": "Succeeded", "F": "Failed", "U": "Unknown", "T": "Running"}


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def role(
    name: str = "worker",
    replicas: int = 3,
    restart: RestartPolicy = RestartPolicy.NEVER,
    policy: RolePolicy | None = USUAL,
    elastic: Elastic | None = None,
) -> Role:
    return Role(
        name=name, replicas=replicas, template=TEMPLATE, restart=restart, policy=policy, elastic=elastic
    )


def workload(
    *roles: Role,
    rules: Rules | None = None,
    limits: Limits | None = None,
    gang: Gang | None = None,
    cleanup: CleanupPolicy = CleanupPolicy.RUNNING,
    suspended: bool = False,
    generation: int = 1,
) -> Workload:
    """A job `job` in namespace `ns`; if no rules are given every role must succeed and none may fail."""
    named = {item.name: item for item in roles or (role(),)}
    usual = Rules(succeeded_when=(tuple(named),), failed_when=tuple((name,) for name in named))
    return Workload(
        kind="TrainingRun",
        api_version="argosy.dev/v1alpha1",
        namespace="ns",
        name="job",
        uid="job-uid",
        generation=generation,
        framework="custom",
        roles=named,
        rules=rules or usual,
        limits=limits or Limits(),
        gang=gang,
        cleanup=cleanup,
        suspended=suspended,
    )


def pod(
    index: int = 0,
    phase: str = "Running",
    *,
    role: str = "worker",
    attempt: int = 1,
    replacement: int = 0,
    exit_code: int | None = None,
    node: str = "",
    terminating: bool = False,
    disrupted: bool = False,
    disruption_reason: str = "",
    reason: str = "",
    out_of_memory: bool = False,
    waits_for_dependency: bool = False,
    waiting_reason: str = "",
    container_restarts: int = 0,
    last_exit_code: int | None = None,
    created: datetime | None = NOW,
    deletion_time: datetime | None = None,
) -> ObservedPod:
    return ObservedPod(
        name=f"job-{role}-{index}",
        uid=f"{role}-{index}-{attempt}-{replacement}",
        role=role,
        index=index,
        attempt=attempt,
        replacement=replacement,
        phase=phase,
        exit_code=exit_code,
        node=node,
        terminating=terminating,
        disrupted=disrupted or bool(disruption_reason),
        disruption_reason=disruption_reason,
        reason=reason,
        out_of_memory=out_of_memory,
        waits_for_dependency=waits_for_dependency,
        waiting_reason=waiting_reason,
        container_restarts=container_restarts,
        last_exit_code=last_exit_code,
        created=created,
        deletion_time=deletion_time,
    )


def pods(letters: str, role: str = "worker") -> tuple[ObservedPod, ...]:
    """Pods from letters, one per index: P, R, S, F, U are phases, T is terminating, `.` is a missing pod."""
    return tuple(
        pod(index, _LETTERS[letter], role=role, terminating=letter == "T")
        for index, letter in enumerate(letters)
        if letter != "."
    )


def observation(
    *observed: ObservedPod,
    confirmed_absent: Sequence[tuple[str, int]] = (),
    recently_deleted: Sequence[ObservedPod] = (),
    nodes_down: Sequence[str] = (),
) -> Observed:
    return Observed(
        pods=observed,
        confirmed_absent=frozenset(confirmed_absent),
        recently_deleted=tuple(recently_deleted),
        nodes_down=frozenset(nodes_down),
    )


def existing_child(child: Child) -> KubernetesObject:
    """A child as it is in the caches after its creation."""
    written = child.body.get("metadata")
    metadata = ObjectMeta(
        labels=dict(written.get("labels", {})) if isinstance(written, dict) else {},
        name=child.name,
        uid=f"uid-of-{child.name}",
        resource_version="1",
        annotations={labels.DIGEST: child.digest},
    )
    return child.kind(metadata=metadata)  # type: ignore[call-arg]  # the protocol has no constructor


def existing(kind: type[KubernetesObject], name: str) -> KubernetesObject:
    """An existing object of this kind whose content differs from the desired one."""
    return existing_child(Child(kind, name, {}))


def role_record(phase: Phase = Phase.PENDING, *, size: int, created: int = 0, **fields: Any) -> RoleRecord:
    """A role with the indexes 0 to `size` - 1, of which the first `created` have had a pod."""
    return RoleRecord(
        phase, members=IndexSet.first(size), declared=size, created=IndexSet.first(created), **fields
    )
