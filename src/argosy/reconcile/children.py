"""The job's children other than pods: bodies with owner, labels and digest, and the types they are fetched
by."""

from base64 import b64encode
from collections.abc import Mapping

from argosy.kinds import labels
from argosy.kinds.kubernetes import PodGroup, Role, RoleBinding, Service, ServiceAccount
from argosy.reconcile.render import Json, job_labels, owner_reference, role_labels, role_selector
from argosy.reconcile.sshkeys import key_files
from argosy.workload.model import Workload
from argosy.workload.plan import EnsureChild, EnsureKeys, EnsurePodGroup, EnsureService

ChildKind = type[Service] | type[ServiceAccount] | type[Role] | type[RoleBinding] | type[PodGroup]

CHILD_KINDS: Mapping[str, ChildKind] = {
    kind.resource.kind: kind for kind in (Service, ServiceAccount, Role, RoleBinding, PodGroup)
}


def service_body(workload: Workload, action: EnsureService) -> Json:
    """Headless, and with the addresses of pods that are not ready yet: ranks find each other to become
    ready."""
    spec: Json = {"clusterIP": "None", "publishNotReadyAddresses": True}
    spec["selector"] = role_selector(workload, action.role)
    if ports := workload.rules.service_ports.get(action.role):
        spec["ports"] = [{"name": name, "port": number} for name, number in ports]
    return child_body(workload, action.name, {"spec": spec}, role=action.role if workload.role_label else "")


def group_body(workload: Workload, action: EnsurePodGroup) -> Json:
    spec: Json = {
        "minMember": action.min_member,
        "queue": action.queue,
        "priorityClassName": action.priority_class,
    }
    if action.min_resources:
        spec["minResources"] = action.min_resources
    body = child_body(workload, action.name, {"spec": spec})
    handed, metadata = workload.handed_on, body["metadata"]
    assert isinstance(metadata, dict)
    if handed.annotations:
        metadata["labels"] = {**metadata["labels"], **handed.labels}
        metadata["annotations"] = dict(handed.annotations)
    return body


def ensured_body(workload: Workload, action: EnsureChild) -> Json:
    return child_body(workload, action.name, action.body, action.digest)


def keys_body(workload: Workload, action: EnsureKeys) -> Json:
    """Another key pair each time. Immutable: pods that have been given it would not see a change."""
    data = {name: b64encode(content).decode() for name, content in key_files().items()}
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
    return {**body, "metadata": metadata}
