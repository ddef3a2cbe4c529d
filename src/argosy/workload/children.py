"""What a job has beside its pods and its group: services, the account of pods that start processes in others,
and the keys of pods that reach others by ssh.

Nobody watches Secrets, so that the operator need not be able to list them: that there are keys is made sure
of whenever pods are made that have them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from argosy.workload.model import Json, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Action, CreatePod, EnsureChild, EnsureService, EnsureSshSecret

_RBAC = "rbac.authorization.k8s.io"


def missing_children(workload: Workload, observed: Observed) -> Iterator[Action]:
    """Makes what is not there, and corrects what is there with another content."""
    for role in workload.rules.services:
        name = workload.service(role)
        if ("Service", name) not in observed.children:
            yield EnsureService(role, name)
    for role in workload.rules.exec_from:
        for child in _account(workload, role, observed):
            if observed.children.get((child.kind, child.name)) != child.digest:
                yield child


def ssh_secret_if_needed(workload: Workload, creating: Iterable[CreatePod]) -> Iterator[EnsureSshSecret]:
    """The keys, if a pod that is made now has them."""
    among = workload.rules.ssh_roles
    if among and any(pod.role in among for pod in creating):
        yield EnsureSshSecret(ssh_secret_name(workload), workload.rules.ssh_verifies_hosts)


def rbac_requeue_at(workload: Workload, creating: bool, now: datetime) -> datetime | None:
    """When to look again: pods that are made now are to be had rights over as soon as they are there."""
    return now if creating and workload.rules.exec_from else None


def service_account_name(workload: Workload, role: str) -> str:
    """The service account under which pods of this role run if they start processes in others."""
    return f"{workload.name}-{role}"


def ssh_secret_name(workload: Workload) -> str:
    """The Secret with the job's key pair for ssh."""
    return f"{workload.name}-ssh"


def _account(workload: Workload, role: str, observed: Observed) -> Iterator[EnsureChild]:
    """Rights over pods that are the job's own, by name, while they exist.

    A name alone is nothing to go by: before the job's pod is there, whoever has that name is a stranger's.
    """
    name = service_account_name(workload, role)
    pods = sorted(pod.name for pod in observed.pods if pod.role in workload.rules.exec_into)
    yield _child("ServiceAccount", name, {"apiVersion": "v1", "automountServiceAccountToken": False})
    if not pods and ("Role", name) not in observed.children:
        return
    yield _child("Role", name, {"apiVersion": f"{_RBAC}/v1", "rules": _rules(pods)})
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": workload.namespace}]
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    yield _child(
        "RoleBinding", name, {"apiVersion": f"{_RBAC}/v1", "subjects": subjects, "roleRef": reference}
    )


def _rules(pods: Sequence[str]) -> list[Json]:
    if not pods:
        return []  # a rule that names none would be for all
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": pods},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": pods},
    ]


def _child(kind: str, name: str, content: Json) -> EnsureChild:
    body = {"kind": kind, "metadata": {"name": name}, **content}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    return EnsureChild(kind, name, body, digest)
