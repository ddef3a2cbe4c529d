"""What a job has beside its pods and its group: services, and the account of pods that start processes in
others."""

import hashlib
import json
from collections.abc import Iterator

from argosy.workload.model import Json, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Action, EnsureChild, EnsureService

_RBAC = "rbac.authorization.k8s.io"


def missing(workload: Workload, seen: Observed) -> Iterator[Action]:
    """Makes what is not there, and corrects what is there with another content."""
    for role in workload.rules.services:
        name = workload.service(role)
        if ("Service", name) not in seen.children:
            yield EnsureService(role, name)
    for role in workload.rules.exec_from:
        for child in _account(workload, role):
            if seen.children.get((child.kind, child.name)) != child.digest:
                yield child


def account(workload: Workload, role: str) -> str:
    """The service account under which pods of this role run if they start processes in others."""
    return f"{workload.name}-{role}"


def _account(workload: Workload, role: str) -> Iterator[EnsureChild]:
    name = account(workload, role)
    pods = [
        workload.hostname(other.name, index)
        for other in workload.roles.values()
        for index in range(other.replicas)
    ]
    yield _child("ServiceAccount", name, {"apiVersion": "v1", "automountServiceAccountToken": False})
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": pods},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": pods},
    ]
    yield _child("Role", name, {"apiVersion": f"{_RBAC}/v1", "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": workload.namespace}]
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    yield _child(
        "RoleBinding", name, {"apiVersion": f"{_RBAC}/v1", "subjects": subjects, "roleRef": reference}
    )


def _child(kind: str, name: str, content: Json) -> EnsureChild:
    body = {"kind": kind, "metadata": {"name": name}, **content}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    return EnsureChild(kind, name, body, digest)
