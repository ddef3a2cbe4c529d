"""Reads what a ProvisionedInstance depends on: its template, its Secrets, its job, and its Node."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.capacity import reasons
from argosy.capacity.join import KEYS, JoinPlan, mismatches, missing_keys
from argosy.capacity.machine_plan import NodeAnnouncement, NodeFacts, NodePods
from argosy.capacity.machine_record import (
    Gpu,
    MachineRecord,
    MachineSpec,
    MachineState,
    region_of,
)
from argosy.capacity.providers.gce_account import CREDENTIALS_KEY, check_account
from argosy.dialects.spot.reasons import INVALID_SPEC
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node
from argosy.kinds.quantity import parse_quantity
from argosy.kinds.spot import SpotInstanceJob
from argosy.kinds.spot_machines import InstanceTemplate, ProvisionedInstance, SpotInstanceVM
from argosy.plan.contract import ViewState
from argosy.plan.drivers import Refusal, SecretContent
from argosy.workload.announcements import DEFAULT_SECONDS, NoticeCause, NoticeRules, find_announcement

Template = SpotInstanceVM | InstanceTemplate

DEFAULT_JOIN_SECRET = "kubeadm-join-token"  # noqa: S105
GPU_RESOURCE = "nvidia.com/gpu"
CDI_PREFIX = "container.devices.cdi.k8s.io/"
CLOCK_SKEW = timedelta(seconds=60)


class Checked(Struct, frozen=True):
    """Whether a Secret has what is needed: True, False, or None while it has not been read."""

    ready: bool | None = None
    reason: str = ""
    message: str = ""


def check_template(obj: ProvisionedInstance, template: Template | None) -> Checked:
    """Return whether the template exists, may be used from here, and says what is needed."""
    where = obj.spec.instance_template_namespace or obj.metadata.namespace
    name = f"{obj.spec.instance_template_kind} {where}/{obj.spec.instance_template_name}"
    if template is None:
        return Checked(False, reasons.TEMPLATE_NOT_FOUND, f"{name} not found")
    allowed = template.metadata.annotations.get(labels.ALLOWED_NAMESPACES, "")
    names = {item.strip() for item in allowed.split(",")}
    if where != obj.metadata.namespace and names.isdisjoint({"*", obj.metadata.namespace}):
        return Checked(
            False, reasons.TEMPLATE_NOT_FOUND, f"{name} not found, or not shared with this namespace"
        )
    if problem := template_problem(template):
        return Checked(False, INVALID_SPEC, f"{name}: {problem}")
    return Checked(True, reasons.FOUND)


def template_problem(template: Template) -> str:
    """Return what the CRD would have rejected; empty if nothing."""
    spec, gcp = template.spec, template.spec.gcp
    for path, value in (
        ("spec.vmImage", spec.vm_image),
        ("spec.gcp.project", gcp.project),
        ("spec.gcp.zone", gcp.zone),
        ("spec.gcp.machineType", gcp.machine_type),
    ):
        if not value:
            return f"{path}: must not be empty"
    for path, text in (("spec.gcp.project", gcp.project), ("spec.gcp.zone", gcp.zone)):
        if not re.fullmatch(r"[a-z0-9][-a-z0-9.:]*", text):
            return f"{path}: invalid value {text!r}: must consist of lower case letters, digits and dashes"
    if gcp.region and gcp.region != region_of(gcp.zone):
        return f"spec.gcp.region: must be the region of the zone, {region_of(gcp.zone)}"
    if spec.gpu is not None and (not spec.gpu.type or spec.gpu.count < 1):
        return "spec.gpu: type and a count of at least 1 are required"
    return ""


def machine_spec(template: Template) -> MachineSpec:
    """Return what machine the template describes."""
    spec, gcp = template.spec, template.spec.gcp
    zones = gcp.fallback_zones
    return MachineSpec(
        project=gcp.project,
        zone=gcp.zone,
        machine_type=gcp.machine_type,
        image=spec.vm_image,
        gpu=Gpu(spec.gpu.type, spec.gpu.count) if spec.gpu else None,
        disk_size_gb=gcp.disk_size_gb,
        disk_type=gcp.disk_type,
        network_tags=tuple(gcp.network_tags),
        service_account=gcp.service_account,
        external_ip=gcp.external_ip,
        startup_script=spec.startup_script,
        spot=template.spec.preemptible if isinstance(template, InstanceTemplate) else True,
        fallback_zones=None if zones is None else tuple(zones),
    )


def join_plan(secret: str, template: Template) -> JoinPlan:
    """Return where the join data is, with what the template fills in."""
    config = template.spec.kubeadm_join_config if isinstance(template, SpotInstanceVM) else None
    if config is None:
        return JoinPlan(secret)
    return JoinPlan(secret, config.ca_cert_hash.strip(), config.control_plane_endpoint.strip())


def join_secret_of(template: Template) -> str:
    """Return the name of the Secret with the join data."""
    config = template.spec.kubeadm_join_config if isinstance(template, SpotInstanceVM) else None
    ref = config.token_secret_ref if config is not None else None
    return ref.name if ref is not None and ref.name else DEFAULT_JOIN_SECRET


def content(state: ViewState) -> Mapping[str, bytes] | None:
    """Return the content of a Secret as it is now; None if it cannot be read."""
    if state.problem or not isinstance(state.value, SecretContent):
        return None
    return state.value.data


def check_credentials(name: str, state: ViewState) -> Checked:
    """Return whether the Secret has the JSON of a service account."""
    data = content(state)
    if data is None:
        return _unreadable(state)
    if CREDENTIALS_KEY not in data:
        return Checked(False, reasons.KEY_MISSING, f'secret {name}: key "{CREDENTIALS_KEY}" missing')
    try:
        check_account(data[CREDENTIALS_KEY])
    except Refusal as refusal:
        return Checked(False, reasons.INVALID_CREDENTIALS, f"secret {name}: {refusal.message}")
    return Checked(True, reasons.FOUND)


def check_join(name: str, plan: JoinPlan, state: ViewState) -> Checked:
    """Return whether the Secret and the template together have all join data."""
    data = content(state)
    if data is None:
        return _unreadable(state)
    missing = missing_keys(plan, data)
    if missing:
        keys = ", ".join(f'"{key}"' for key in KEYS if key in missing)
        word = "key" if len(missing) == 1 else "keys"
        return Checked(False, reasons.KEY_MISSING, f"secret {name}: {word} {keys} missing")
    return Checked(True, reasons.FOUND)


def join_mismatch(plan: JoinPlan, state: ViewState) -> str:
    """Return which values of the template the Secret overrules; empty if none."""
    return ", ".join(mismatches(plan, content(state) or {}))


def _unreadable(state: ViewState) -> Checked:
    if state.problem:
        return Checked(False, reasons.SECRET_NOT_FOUND, state.problem)
    return Checked()


def digest_of(*parts: object) -> str:
    """Return what changes when one of these changes; Secrets are only part of a hash."""
    hashed = hashlib.sha256()
    for part in parts:
        if isinstance(part, Mapping):
            hashed.update(repr(sorted(part.items())).encode())
        else:
            hashed.update(repr(part).encode())
        hashed.update(b"\0")
    return hashed.hexdigest()[:16]


def needed_gpus(template: Template | None, job: SpotInstanceJob | None) -> int:
    """Return the GPUs that the Node must offer: those of the VM, unless the job's pods request none."""
    gpu = template.spec.gpu if template is not None else None
    if gpu is None:
        return 0
    return gpu.count if job is None or _requests_gpu(job.spec.job_template) else 0


def _requests_gpu(job_template: object) -> bool:
    pod = _mapping(_mapping(_mapping(_mapping(job_template).get("spec")).get("template")).get("spec"))
    containers = pod.get("containers")
    for container in containers if isinstance(containers, list) else []:
        resources = _mapping(_mapping(container).get("resources"))
        for kind in ("requests", "limits"):
            if _mapping(resources.get(kind)).get(GPU_RESOURCE, 0) not in (0, "0"):
                return True
    return False


def is_of_machine(node: Node, record: MachineRecord) -> bool:
    """Return True if this Node is the recorded machine.

    A Node that was there before the machine was requested is another one of the same name, and so is one of
    which somebody says that it is another machine.
    """
    meta = node.metadata
    if record.node_uid:
        return meta.uid == record.node_uid
    if node.spec.provider_id:
        return node.spec.provider_id == provider_id(record)
    if record.requested_at is None or not record.exists or meta.name != record.name:
        return False
    created = meta.creation_timestamp
    return created is not None and created >= record.requested_at - CLOCK_SKEW


def node_of_machine(nodes: Collection[Node], record: MachineRecord) -> Node | None:
    """Return the Node of the machine; of one that goes, also a Node as which it has joined once more."""
    found = next((node for node in nodes if is_of_machine(node, record)), None)
    if found is not None or record.state not in (MachineState.DELETING, MachineState.LOST):
        return found
    again = replace(record, node_uid="")
    return next((node for node in nodes if is_of_machine(node, again)), None)


def provider_id(record: MachineRecord) -> str:
    return f"gce://{record.project}/{record.zone}/{record.name}"


def node_facts(node: Node, pods: NodePods | None) -> NodeFacts:
    """Return what matters of the Node of a machine."""
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    try:
        gpus = int(parse_quantity(node.status.allocatable.get(GPU_RESOURCE, "0")))
    except ValueError:
        gpus = 0
    return NodeFacts(
        name=node.metadata.name,
        uid=node.metadata.uid,
        ready=ready is not None and ready.status == "True",
        silent=ready is not None and ready.status == "Unknown",
        gpus=gpus,
        pods_not_ready=pods.not_ready if pods is not None else None,
        message=(ready.message or ready.reason) if ready is not None else "it has not reported yet",
    )


_CAUSES = {
    NoticeCause.PREEMPTED: reasons.PREEMPTED,
    NoticeCause.MAINTENANCE: reasons.MAINTENANCE,
    NoticeCause.DRAINED: reasons.MAINTENANCE,
    NoticeCause.OUT_OF_SERVICE: reasons.HOST_ERROR,
}


_OWN_SOURCES = (labels.MACHINE_POOL_SOURCE, labels.MACHINE_SOURCE)


def announcement(node: Node, rules: NoticeRules) -> NodeAnnouncement | None:
    """Return the end that somebody has announced on the Node; a mere hint is none.

    Nor is what the VM's own pool announces, which will delete the VM itself, or what is repeated there of its
    status. Where no deadline is announced, it is the one that jobs on the node expect.
    """
    found = find_announcement(node, rules)
    if found is None or found.cause is NoticeCause.CANDIDATE or found.source in _OWN_SOURCES:
        return None
    cause = _CAUSES.get(found.cause, reasons.UNKNOWN)
    return NodeAnnouncement(found.source, cause, found.deadline, DEFAULT_SECONDS[found.cause])


def taken_by(obj: ProvisionedInstance, node: Node | None, namesakes: Iterable[ProvisionedInstance]) -> str:
    """Return what has the name of an object's VM already: a Node, or the VM of an older object anywhere."""
    if node is not None:
        return "a Node"
    return "another VM" if any(_is_older(each, obj) for each in namesakes) else ""


def _is_older(obj: ProvisionedInstance, than: ProvisionedInstance) -> bool:
    """Return True if an object was created before another one, and its VM may exist."""
    if obj.status.state == "TERMINATED":
        return False
    times = [each.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC) for each in (obj, than)]
    return (times[0], obj.metadata.uid) < (times[1], than.metadata.uid)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
