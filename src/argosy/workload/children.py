"""Defines the children of a job besides pods and its pod group, as data.

- A headless Service for each role whose pods are reached by name, or for each of its pods.
- A ServiceAccount, Role and RoleBinding for each role whose pods start processes in other pods.
- A ConfigMap with the host list of a launcher.
- A PodDisruptionBudget of a job whose pods are not evicted before a checkpoint is saved.
- A Secret with key pairs for roles whose pods reach each other by ssh. Secrets are not watched, so that the
  operator needs no right to list them: the Secret is created, unless it exists, whenever pods are created
  that mount it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from argosy.kinds import labels
from argosy.kinds.dns_names import is_label_value
from argosy.kinds.kubernetes import (
    ConfigMapMetadata,
    PodDisruptionBudgetMetadata,
    Role,
    RoleBinding,
    SecretMetadata,
    Service,
    ServiceAccount,
)
from argosy.plan.actions import Apply, Remove
from argosy.plan.children import Child, Owner
from argosy.plan.contract import Inputs
from argosy.plan.diff import changes, remove
from argosy.workload.dependencies import is_creation_held
from argosy.workload.host_files import config_map_name, render_host_files
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.launchers import is_launcher_held
from argosy.workload.model import Json, Workload
from argosy.workload.notice import OpenNotice, SaveStep
from argosy.workload.notice_saves import is_host_release
from argosy.workload.observed import Observed
from argosy.workload.plan import CreatePod
from argosy.workload.record import Record
from argosy.workload.release import has_released
from argosy.workload.saves import can_save
from argosy.workload.scale_request import hidden_indexes

SSH_KEYS = "ssh-keys"
SSH_KEYS_AND_HOSTS = "ssh-keys-and-hosts"
SSH_KEYS_NAMED_RSA = "ssh-keys-named-rsa"
"""Generators of key pairs for ssh. The second also lets ssh reject hosts that do not show the job's host key;
the third names its files id_rsa and id_rsa.pub."""

_RBAC = Role.resource.group


def sync_children(workload: Workload, record: Record, observed: Observed) -> Iterator[Apply | Remove]:
    """Yield what creates missing children, updates those whose content has changed, and removes Services of
    pods that the job no longer has and a PodDisruptionBudget that it no longer needs."""
    wanted = [_service(workload, role) for role in workload.rules.services]
    hidden = hidden_indexes(record.operation, observed.scale_requests)
    for role in workload.rules.pod_services:
        indexes = _with_services(record, role) - hidden
        wanted += [_pod_service(workload, record, role, index) for index in indexes]
    for role in workload.rules.exec_from:
        if not is_creation_held(workload.roles[role], record):
            wanted += _account(workload, role, observed)
    wanted += _config_map(workload, record, observed)
    wanted += _disruption_budget(workload, record, observed)
    for change in changes(wanted, Inputs(observed.children)):
        if isinstance(change, Apply):
            yield change
    yield from _unneeded_pod_services(workload, record, observed)
    yield from _unneeded_budgets(workload, observed)


def pod_services(workload: Workload, observed: Observed) -> Iterator[Service]:
    """Yield the existing Services of single pods."""
    for child in observed.children:
        values = child.metadata.labels
        of_pod = labels.INDEX in values and values.get(labels.ROLE) in workload.rules.pod_services
        if isinstance(child, Service) and of_pod:
            yield child


def ssh_secret_if_needed(workload: Workload, creating: Iterable[CreatePod]) -> Iterator[Apply]:
    """Create the Secret with the keys, if a pod that mounts it is created now."""
    roles = workload.rules.ssh_roles
    if roles and any(pod.role in roles for pod in creating):
        generator = SSH_KEYS_AND_HOSTS if workload.rules.ssh_verifies_hosts else SSH_KEYS
        # Immutable: pods that have mounted it would not see a change.
        yield Apply(Child(SecretMetadata, ssh_secret_name(workload), {"immutable": True}, generator))


def secrets_if_needed(workload: Workload, creating: Iterable[CreatePod]) -> Iterator[Apply]:
    """Create the generated Secrets that pods mount which are created now."""
    roles = {pod.role for pod in creating}
    for secret in workload.rules.secrets:
        if roles.intersection(secret.roles):
            yield Apply(Child(SecretMetadata, secret.name, {"immutable": True}, secret.generator))


def is_account_current(workload: Workload, observed: Observed) -> bool:
    """Return True if the Roles of launchers are seen to name all pods that exist."""
    wanted = [
        child
        for role in workload.rules.exec_from
        for child in _account(workload, role, observed)
        if child.kind is Role
    ]
    return not changes(wanted, Inputs(observed.children))


def rbac_requeue_at(workload: Workload, creating: bool, now: datetime) -> datetime | None:
    """Return when to reconcile again so that the Roles of launchers list the pods that are created now.

    Not for launchers that reach a pod only when it is in their host list, which waits for the Role.
    """
    in_time = workload.rules.host_list is not None
    return now if creating and workload.rules.exec_from and not in_time else None


def service_account_name(workload: Workload, role: str) -> str:
    """Return the account of pods of this role, if they start processes in others."""
    return workload.naming.account.format(job=workload.name, role=role)


def ssh_secret_name(workload: Workload) -> str:
    return workload.naming.ssh_keys.format(job=workload.name)


def disruption_budget_name(workload: Workload) -> str:
    """Return the name of the PodDisruptionBudget. A job of another kind may have the same name."""
    return f"{workload.name}-{workload.kind.lower()}-checkpoint"


def job_owner(workload: Workload) -> Owner:
    """Return the job as the owner of its children."""
    return Owner(
        workload.api_version,
        workload.kind,
        workload.namespace,
        workload.name,
        workload.uid,
        job_labels(workload),
    )


def job_labels(workload: Workload) -> dict[str, str]:
    """Return the labels of everything that is created for a job."""
    return {labels.MANAGED_BY: labels.MANAGER, labels.JOB: workload.name, **workload.labels}


def role_labels(workload: Workload, role: str) -> dict[str, str]:
    """Return the labels of the pods of a role."""
    return {**job_labels(workload), labels.ROLE: role, **_api_role_labels(workload, role)}


def request_labels(workload: Workload, added_by: str) -> dict[str, str]:
    """Return the label of what an object asked for; none if its name is too long for a label."""
    label = workload.semantics.request_label
    return {label: added_by} if label and added_by and is_label_value(added_by) else {}


def _api_role_labels(workload: Workload, role: str) -> dict[str, str]:
    """Return the labels of a role that the job's API defines."""
    label = workload.semantics.role_label
    return {label: role} if label else {}


def _service(workload: Workload, role: str) -> Child:
    """Return the headless Service of a role.

    It has the addresses of pods that are not ready too: ranks find each other to become ready. An API with
    labels of its own selects pods by those.
    """
    api_labels = _api_role_labels(workload, role)
    selector = {**workload.labels, **api_labels} if api_labels else role_labels(workload, role)
    spec: dict[str, object] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector,
    }
    if ports := _ports(workload, role):
        spec["ports"] = [{"name": name, "port": number} for name, number in ports]
    body: dict[str, object] = {"spec": spec}
    if api_labels:
        body["metadata"] = {"labels": {labels.ROLE: role, **api_labels}}
    return Child(Service, workload.service(role), body)


def _pod_service(workload: Workload, record: Record, role: str, index: int) -> Child:
    """Return the headless Service of one pod, whose name resolves to it.

    The label of who asked for the pod is written when the Service is created and stays.
    """
    api_labels = {**workload.labels, **_api_role_labels(workload, role)}
    index_label = workload.semantics.index_label
    if index_label:
        api_labels[index_label] = str(index)
    spec: dict[str, object] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": api_labels if index_label else {**role_labels(workload, role), labels.INDEX: str(index)},
        "ports": [{"name": name, "port": number} for name, number in _ports(workload, role)],
    }
    metadata = {"labels": {**api_labels, labels.ROLE: role, labels.INDEX: str(index)}}
    asked = request_labels(workload, record.added_by(role, index))
    body = {"metadata": metadata, "spec": spec}
    return Child(Service, workload.hostname(role, index), body, propagated={"labels": asked})


def _config_map(workload: Workload, record: Record, observed: Observed) -> Iterator[Child]:
    """Yield the ConfigMap with the host list, as soon as the launcher may be created."""
    rule, name = workload.rules.host_list, config_map_name(workload)
    if rule is None or not name or is_creation_held(workload.roles[rule.launcher], record):
        return
    files = render_host_files(workload, record)
    if files is not None and not is_launcher_held(workload, record, observed, rule.launcher):
        yield Child(ConfigMapMetadata, name, {"data": files.data}, merge=True)


def _disruption_budget(workload: Workload, record: Record, observed: Observed) -> Iterator[Child]:
    """Yield the PodDisruptionBudget that holds evictions back while a checkpoint can be saved before.

    A number is the only form that Kubernetes supports for pods of controllers that it does not know. Pods
    that are not ready can always be evicted. Kubernetes evicts no pod that two budgets select, so this one
    selects by role too: a job of another kind may have the same name.
    """
    policy = workload.checkpoint
    if policy is None or not policy.holds_evictions:
        return
    is_open = any(_opens_budget(workload, record, observed, notice) for notice in record.notices)
    holds = can_save(workload, record, observed) and not is_open
    # The role may have more replicas than declared, if objects ask for them.
    pods = max(workload.total_pods, sum(len(role.wanted) for role in record.roles.values()))
    spec = {
        "minAvailable": pods if holds else 0,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {
            "matchLabels": {labels.JOB: workload.name, labels.MANAGED_BY: labels.MANAGER, **workload.labels},
            "matchExpressions": [{"key": labels.ROLE, "operator": "In", "values": sorted(workload.roles)}],
        },
    }
    yield Child(PodDisruptionBudgetMetadata, disruption_budget_name(workload), {"spec": spec})


def _opens_budget(workload: Workload, record: Record, observed: Observed, notice: OpenNotice) -> bool:
    """Return True if evictions are allowed because of a notice: what was waited for is saved, or missed."""
    if not notice.observed:
        return False
    if notice.step == SaveStep.SAVED and is_host_release(workload, notice):
        return has_released(workload, record, observed, notice)
    return notice.step in (SaveStep.MISSED, SaveStep.RELEASED)


def _unneeded_budgets(workload: Workload, observed: Observed) -> Iterator[Remove]:
    """Yield the removal of budgets that would hold evictions back although nobody asks for them any more.

    Earlier versions of the operator have given them another name.
    """
    policy = workload.checkpoint
    name = disruption_budget_name(workload) if policy and policy.holds_evictions else ""
    for child in observed.children:
        meta = child.metadata
        is_budget = isinstance(child, PodDisruptionBudgetMetadata) and meta.deletion_timestamp is None
        if is_budget and meta.name != name:
            yield remove(child)


def _ports(workload: Workload, role: str) -> Sequence[tuple[str, int]]:
    return workload.rules.service_ports.get(role, ())


def _with_services(record: Record, role: str) -> IndexSet:
    """Return the replicas whose pods have Services: none before the first pods of an attempt are created."""
    return record.role(role).wanted if record.attempt_started_at else EMPTY


def _unneeded_pod_services(workload: Workload, record: Record, observed: Observed) -> Iterator[Remove]:
    for service in pod_services(workload, observed):
        meta = service.metadata
        index = meta.labels.get(labels.INDEX, "")
        wanted = _with_services(record, meta.labels.get(labels.ROLE, ""))
        if meta.deletion_timestamp is None and not (index.isdecimal() and int(index) in wanted):
            yield remove(service)


def _account(workload: Workload, role: str, observed: Observed) -> Iterator[Child]:
    """Return the account of a launcher, and its rights over existing pods of the job, by name."""
    name = service_account_name(workload, role)
    own = dict(workload.rules.account.labels)
    metadata: dict[str, object] = {"metadata": {"labels": own}} if own else {}
    yield Child(ServiceAccount, name, {**metadata, "automountServiceAccountToken": False})
    rules = _rules(workload, observed)
    if not rules and not _exists(Role, name, observed):
        return
    yield Child(Role, name, {**metadata, "rules": rules}, merge=True)
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": workload.namespace}]
    reference = {"apiGroup": _RBAC, "kind": Role.resource.kind, "name": name}
    # After the Role: who may not bind any role may only bind one that exists.
    yield Child(RoleBinding, name, {**metadata, "subjects": subjects, "roleRef": reference}, stage=1)


def _exists(kind: type[Role], name: str, observed: Observed) -> bool:
    return any(isinstance(child, kind) and child.metadata.name == name for child in observed.children)


def _rules(workload: Workload, observed: Observed) -> list[Json]:
    """Return the rules of a Role over objects of the job.

    Of its pods only existing ones: as long as the job has no pod of a name, a pod of that name may be
    anybody's. A rule without names would be one for all objects.
    """
    pods = sorted(pod.name for pod in observed.pods if pod.role in workload.rules.exec_into)
    return [
        {"apiGroups": [""], "resources": [rule.resource], "verbs": list(rule.verbs), "resourceNames": named}
        for rule in workload.rules.account.rules
        if (named := list(rule.names) or pods)
    ]
