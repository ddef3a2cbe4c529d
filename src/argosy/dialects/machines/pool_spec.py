"""Reads the spec of a MachinePool, and builds the objects of its machines."""

from collections.abc import Mapping

from msgspec import Struct

from argosy.capacity.pool_record import Slot
from argosy.capacity.zones import Strategy
from argosy.dialects.spot import names
from argosy.kinds.labels import MACHINE_POOL
from argosy.kinds.machinepool import MAX_REPLICAS, MachinePool
from argosy.kinds.quantity import parse_duration
from argosy.kinds.spot import REPLICA_LABEL
from argosy.kinds.spot_machines import TEMPLATE_KINDS, ProvisionedInstance
from argosy.kinds.text import quote_value
from argosy.plan.children import Child

MAX_DRAIN_SECONDS = 86_400.0
"""A longer `drainGrace` counts as this: it may end after the last day of the calendar."""


class CheckedSpec(Struct, frozen=True, kw_only=True):
    """What of a spec can be used, and what is wrong with the rest."""

    replicas: int
    drain_seconds: float
    problem: str = ""


def check_spec(pool: MachinePool) -> CheckedSpec:
    """Return what the spec asks for; nothing is changed about the machines of an invalid one."""
    spec, problems = pool.spec, []
    if not 0 <= spec.replicas <= MAX_REPLICAS:
        problems.append(f"spec.replicas: invalid value {spec.replicas}: must be between 0 and {MAX_REPLICAS}")
    if spec.template.kind not in TEMPLATE_KINDS:
        value, allowed = quote_value(spec.template.kind), " or ".join(TEMPLATE_KINDS)
        problems.append(f"spec.template.kind: invalid value {value}: must be {allowed}")
    if not spec.template.name:
        problems.append("spec.template.name: must not be empty")
    if not spec.gcp_credentials_secret_ref.name:
        problems.append("spec.gcpCredentialsSecretRef.name: must not be empty")
    if spec.strategy not in list(Strategy):
        value, allowed = quote_value(spec.strategy), ", ".join(Strategy)
        problems.append(f"spec.strategy: invalid value {value}: must be one of {allowed}")
    if spec.on_demand_fallback_after < 0:
        problems.append(
            f"spec.onDemandFallbackAfter: invalid value {spec.on_demand_fallback_after}: must be at least 0"
        )
    drain_seconds = 0.0
    try:
        drain_seconds = min(parse_duration(spec.drain_grace), MAX_DRAIN_SECONDS)
    except ValueError as error:
        problems.append(f"spec.drainGrace: {error}")
    return CheckedSpec(replicas=spec.replicas, drain_seconds=drain_seconds, problem="; ".join(problems))


def machine_name(pool: MachinePool, index: int, stamp: int) -> str:
    """Return the name of a machine, as that of a SpotInstanceJob's."""
    return names.instance_name(pool.metadata.name, pool.spec.template.name, index, stamp)


def selector(pool: MachinePool) -> str:
    return f"{MACHINE_POOL}={names.label_value(pool.metadata.name)}"


def machine_object(pool: MachinePool, slot: Slot, existing: ProvisionedInstance | None) -> Child:
    """Return the ProvisionedInstance of a slot; one that exists keeps its template."""
    spec, namespace = pool.spec, pool.metadata.namespace
    kind, name = spec.template.kind, spec.template.name
    if existing is not None:
        kind, name = existing.spec.instance_template_kind, existing.spec.instance_template_name
    credentials = spec.gcp_credentials_secret_ref
    body: Mapping[str, object] = {
        "apiVersion": ProvisionedInstance.resource.api_version,
        "kind": ProvisionedInstance.resource.kind,
        "metadata": {
            "labels": {
                MACHINE_POOL: names.label_value(pool.metadata.name),
                REPLICA_LABEL: str(slot.index),
            }
        },
        "spec": {
            "instanceTemplateName": name,
            "instanceTemplateNamespace": namespace,
            "instanceTemplateKind": kind,
            "gcpCredentialsSecretRef": {
                "name": credentials.name,
                "namespace": credentials.namespace or namespace,
            },
            "strategy": spec.strategy,
            "onDemandFallbackAfter": spec.on_demand_fallback_after,
        },
    }
    return Child(ProvisionedInstance, slot.machine, body)
