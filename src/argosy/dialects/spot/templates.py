"""Reconciles SpotInstanceVM and InstanceTemplate: templates of VMs, which do nothing themselves.

Their status says whether they can be used. That of a SpotInstanceVM also lists the VMs that were made of it.
Earlier operators have put a finalizer on SpotInstanceVMs; it is removed when such an object is deleted.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from argosy.dialects.spot.conditions import Stated, update_conditions
from argosy.dialects.spot.instance import TEMPLATE_INDEX
from argosy.dialects.spot.instance_inputs import template_problem
from argosy.dialects.spot.reasons import ACCEPTED, INVALID_SPEC
from argosy.kinds.spot import VM_FINALIZER
from argosy.kinds.spot_machines import (
    InstanceSummary,
    InstanceTemplate,
    InstanceTemplateStatus,
    ProvisionedInstance,
    SpotInstanceVM,
    SpotInstanceVMStatus,
)
from argosy.plan.children import KubernetesObject
from argosy.plan.contract import Decision, Inputs, Matching, Need


class _NoRecord(Struct, frozen=True):
    version: int = 1


class InstanceTemplateReconciler:
    """Says whether an InstanceTemplate can be used."""

    record: type[_NoRecord] | None = None
    owns: tuple[type[KubernetesObject], ...] = ()
    finalizer = ""

    def needs(self, obj: InstanceTemplate, record: _NoRecord | None) -> Iterable[Need]:
        return ()

    def decide(
        self, obj: InstanceTemplate, record: _NoRecord | None, inputs: Inputs, now: datetime
    ) -> Decision:
        generation = obj.metadata.generation
        conditions = update_conditions(obj.status.conditions, [_accepted(obj)], generation, now)
        return Decision(InstanceTemplateStatus(conditions))


class SpotInstanceVMReconciler:
    """Says whether a SpotInstanceVM can be used, and lists its VMs."""

    record: type[_NoRecord] | None = None
    owns: tuple[type[KubernetesObject], ...] = ()
    finalizer = VM_FINALIZER

    def needs(self, obj: SpotInstanceVM, record: _NoRecord | None) -> Iterable[Need]:
        return (_instances(obj),)

    def decide(
        self, obj: SpotInstanceVM, record: _NoRecord | None, inputs: Inputs, now: datetime
    ) -> Decision:
        made = [each for each in inputs.all(_instances(obj)) if each.status.instance_id]
        generation = obj.metadata.generation
        conditions = update_conditions(obj.status.conditions, [_accepted(obj)], generation, now)
        summaries = [_summary(each) for each in sorted(made, key=lambda each: each.metadata.name)]
        return Decision(SpotInstanceVMStatus(conditions, summaries), released=True)


def _instances(obj: SpotInstanceVM) -> Matching[ProvisionedInstance]:
    meta = obj.metadata
    value = f"{SpotInstanceVM.resource.kind}/{meta.namespace}/{meta.name}"
    return Matching(ProvisionedInstance, TEMPLATE_INDEX, value)


def _accepted(obj: SpotInstanceVM | InstanceTemplate) -> Stated:
    problem = template_problem(obj)
    return Stated(ACCEPTED, "False" if problem else "True", INVALID_SPEC if problem else ACCEPTED, problem)


def _summary(obj: ProvisionedInstance) -> InstanceSummary:
    status = obj.status
    return InstanceSummary(
        name=status.instance_name,
        instance_id=status.instance_id,
        internal_ip=status.internal_ip,
        external_ip=status.external_ip,
        state=status.state,
        joined_cluster=status.joined_cluster,
        node_name=status.node_name,
        creation_time=status.creation_time,
    )
