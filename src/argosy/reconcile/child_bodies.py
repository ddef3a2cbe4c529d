"""The job's children other than pods: bodies with owner, labels and digest, and the types they are fetched
by."""

import json
from base64 import b64encode
from collections.abc import Mapping

from argosy.kinds import labels
from argosy.kinds.kubernetes import Role, RoleBinding, Service, ServiceAccount
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.pod_groups import PodGroupType
from argosy.reconcile.render import Json, job_labels, owner_reference, role_labels, role_selector
from argosy.reconcile.sshkeys import key_files
from argosy.workload.gang_schedulers.registry import GANG_SCHEDULERS
from argosy.workload.model import Workload
from argosy.workload.plan import EnsureChild, EnsureService, EnsureSshSecret

ChildKind = type[Service] | type[ServiceAccount] | type[Role] | type[RoleBinding] | PodGroupType

CHILD_KINDS: Mapping[str, ChildKind] = {
    **{kind.resource.kind: kind for kind in (Service, ServiceAccount, Role, RoleBinding)},
    **{one.group.child_kind: one.group.kind for one in GANG_SCHEDULERS.values() if one.group},
}


def service_body(workload: Workload, action: EnsureService) -> Json:
    """Headless, and with the addresses of pods that are not ready yet: ranks find each other to become
    ready."""
    spec: Json = {"clusterIP": "None", "publishNotReadyAddresses": True}
    spec["selector"] = role_selector(workload, action.role)
    if ports := workload.rules.service_ports.get(action.role):
        spec["ports"] = [{"name": name, "port": number} for name, number in ports]
    return child_body(workload, action.name, {"spec": spec}, role=action.role if workload.role_label else "")


def ensured_body(workload: Workload, action: EnsureChild) -> Json:
    return child_body(workload, action.name, action.body, action.digest)


def keys_body(workload: Workload, action: EnsureSshSecret) -> Json:
    """Another key pair each time. Immutable: pods that have been given it would not see a change."""
    files = key_files(verify_hosts=action.verify_hosts)
    data = {name: b64encode(content).decode() for name, content in files.items()}
    return child_body(workload, action.name, {"immutable": True, "data": data})


def child_body(
    workload: Workload, name: str, body: Mapping[str, object], digest: str = "", role: str = ""
) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": workload.namespace,
        "labels": role_labels(workload, role) if role else job_labels(workload),
        "ownerReferences": [owner_reference(workload)],
    }
    if digest:
        metadata["annotations"] = {labels.DIGEST: digest}
    given = body.get("metadata")
    return {**body, "metadata": deep_merge(given if isinstance(given, Mapping) else {}, metadata)}


def update_patch(existing: ObjectMeta, body: Json) -> Json:
    """The patch that brings an object to the body, and takes away what an earlier body brought."""
    return deep_merge(_undo(existing), body)


def _undo(existing: ObjectMeta) -> Mapping[str, object]:
    """Return what the object says an earlier body brought; nothing if somebody has garbled it."""
    try:
        undo = json.loads(existing.annotations.get(labels.REMOVAL_PATCH, "{}"))
    except (ValueError, RecursionError):
        return {}
    return undo if isinstance(undo, dict) else {}


def deep_merge(old: Mapping[str, object], new: Mapping[str, object]) -> Json:
    merged: Json = {**old, **new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = deep_merge(before, value)
    return merged
