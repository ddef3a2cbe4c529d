"""What holds for every plan, pod and status, whatever they were made from."""

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
from argosy.workload.record import Record, decode, encode


def check(workload: Workload, before: Record | None, seen: Observed, now: datetime, plan: Plan) -> None:
    """`plan` is what was decided on the other four."""
    assert decide(workload, before, seen, now) == plan, "a decision is a function of its arguments"
    record = plan.record
    assert decode(encode(record)) == record, "a Record survives being stored"
    creates = [(one.role, one.index) for one in plan.actions if isinstance(one, CreatePod)]
    assert len(creates) == len(set(creates)), "one pod a place"
    for name, index in creates:
        role, there = workload.roles[name], seen.by_replica.get((name, index), ())
        assert index < role.replicas, f"{name}-{index} is not wanted"
        assert not there or (workload.allows_surge(role) and all(pod.terminating for pod in there)), (
            f"{name}-{index} is there"
        )
    deletes = {one.uid for one in plan.actions if isinstance(one, DeletePod)}
    assert deletes <= {pod.uid for pod in seen.pods}, "what is deleted was seen"
    if record.finished_at or workload.suspended or workload.deleting:
        assert not creates, "nothing is made for a job that does not run"
    elif plan.restart_causes and workload.limits.restarts is not None:
        assert record.restarts <= workload.limits.restarts, "no restart is beyond the limit"
    if before is not None:
        _goes_on(before, record, now)


def _goes_on(before: Record, record: Record, now: datetime) -> None:
    assert record.generation >= before.generation
    assert record.attempt >= before.attempt
    assert record.restarts >= before.restarts
    if before.finished_at:
        assert record == shift_to_clock(before, now), "terminal is terminal"


def never_regresses(stored: Record, record: Record) -> None:
    """What is written over a Record forgets nothing that must happen once only."""
    assert not stored.finished_at or record.finished_at, "a finished job runs again"
    assert record.attempt >= stored.attempt, "an attempt is forgotten"
    assert record.restarts >= stored.restarts, "restarts are forgotten"
    assert record.disruptions >= stored.disruptions, "disruptions are forgotten"
    if record.attempt != stored.attempt:
        return
    for name, role in stored.roles.items():
        after = record.role(name).replacements
        forgotten = [index for index, count in role.replacements.items() if after.get(index, 0) < count]
        assert not forgotten, f"replacements of {name} {forgotten} are forgotten"


def check_pods(workload: Workload, inject: Inject) -> None:
    """The first and last pod of every role can be rendered and sent."""
    pods = PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid).for_job(
        workload, inject
    )
    for role in workload.roles.values():
        for index in {0, role.replicas - 1}:
            sent = msgspec.json.encode(pods.render(CreatePod(role.name, index, 1, 0), "pod"))
            assert msgspec.json.decode(sent)["spec"]["containers"]


def check_status(kind: type[CustomResource], status: Struct) -> None:
    """It comes back as it was written, passes the kind's definition, and nothing of it is dropped."""
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
