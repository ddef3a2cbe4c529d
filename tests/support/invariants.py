"""Checks the invariants of every plan, pod and status."""

from datetime import datetime
from functools import cache

import msgspec
from msgspec import Struct

from argosy.kinds.crd import crd_for
from argosy.kinds.crd_options import CustomResource
from argosy.local.schema.crd.definition import parse_crd
from argosy.local.schema.crd.prune_default import prune
from argosy.local.schema.crd.validate import validate_status
from argosy.local.schema.model import Schema
from argosy.reconcile.pod_renderer import Inject, PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.clock_skew import shift_to_clock
from argosy.workload.decide import decide
from argosy.workload.model import Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import CreatePod, DeletePod, Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode


def check(workload: Workload, before: Record | None, observed: Observed, now: datetime, plan: Plan) -> None:
    """Check a plan against the workload, Record and observation that it was decided from."""
    assert decide(workload, before, observed, now) == plan, (
        "decide returned another plan for the same arguments"
    )
    record = plan.record
    assert decode(encode(record)) == record, "the Record changes when encoded and decoded"
    creates = [(action.role, action.index) for action in plan.actions if isinstance(action, CreatePod)]
    assert len(creates) == len(set(creates)), "two pods for one replica"
    for name, index in creates:
        role, existing = workload.roles[name], observed.by_replica.get((name, index), ())
        last = record.role(name)
        assert index in last.wanted, f"{name}-{index} is no replica of the role"
        assert index not in last.retired, f"{name}-{index} was replaced by another index"
        assert not existing or (workload.allows_surge(role) and all(pod.terminating for pod in existing)), (
            f"{name}-{index} exists already"
        )
    deletes = {action.uid for action in plan.actions if isinstance(action, DeletePod)}
    assert deletes <= {pod.uid for pod in observed.pods}, "a pod that was not observed is deleted"
    if record.finished_at or workload.suspended or workload.deleting:
        assert not creates, "pods are created for a job that must not run"
    elif plan.restart_causes and workload.limits.restarts is not None:
        assert record.restarts <= workload.limits.restarts, "more restarts than the limit"
    if before is not None:
        _check_monotonic(before, record, now)


def _check_monotonic(before: Record, record: Record, now: datetime) -> None:
    assert record.generation >= before.generation
    assert record.attempt >= before.attempt
    assert record.restarts >= before.restarts
    if before.finished_at:
        assert record == shift_to_clock(before, now), "the Record of a finished job changed"


def check_no_regression(stored: Record, record: Record) -> None:
    """Check that a new Record keeps what the old one counts or has done once."""
    assert not stored.finished_at or record.finished_at, "a finished job runs again"
    assert record.attempt >= stored.attempt, "attempt decreased"
    assert record.restarts >= stored.restarts, "restarts decreased"
    assert record.disruptions >= stored.disruptions, "disruptions decreased"
    if record.attempt != stored.attempt:
        return
    for name, role in stored.roles.items():
        after = record.role(name)
        assert not role.retired - after.retired, f"retired indexes of {name} are used again"
        decreased = [
            index for index, count in role.replacements.items() if after.replacements.get(index, 0) < count
        ]
        assert not decreased, f"replacements of {name} {decreased} decreased"


def check_pods(workload: Workload, inject: Inject) -> None:
    """Check that the first and last pod of every role can be rendered and encoded."""
    pods = PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid).for_job(
        workload, inject
    )
    for role in workload.roles.values():
        for index in {0, role.replicas - 1}:
            sent = msgspec.json.encode(pods.render(CreatePod(role.name, index, 1, 0), "pod"))
            assert msgspec.json.decode(sent)["spec"]["containers"]


def check_status(kind: type[CustomResource], status: Struct) -> None:
    """Check that a status survives encoding and decoding, and that the CRD accepts it and drops nothing."""
    raw = msgspec.json.encode(status)
    assert msgspec.json.decode(raw, type=type(status)) == status
    resource, schema = kind.resource, _schema(kind)
    whole: dict[str, object] = {"apiVersion": resource.api_version, "kind": resource.kind}
    whole |= {"metadata": {"name": "job"}, "status": msgspec.json.decode(raw)}
    assert validate_status(whole, schema) == []
    assert prune(whole, schema) == []


@cache
def _schema(kind: type[CustomResource]) -> Schema:
    defined = parse_crd(crd_for(kind))
    return defined.versions[0].schema
