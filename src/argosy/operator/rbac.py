"""Lists the RBAC rules that the operator needs for itself, as data.

`python -m tools.chart` writes the chart's roles and the tables in `docs/administrators/operator.md` from
these rules and those of each registered API. Conditions and names are Helm expressions, because the chart's
values decide.
"""

from collections.abc import Iterable
from typing import ClassVar, Final, Literal, Protocol

from msgspec import Struct

from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.resource import Resource

Scope = Literal["cluster", "jobs", "operator", "agent", "agentJobs"]
"""Where a rule holds: in the whole cluster, where jobs are served (the whole cluster or `watchNamespace`), or
in the operator's own namespace. Rules of `agent` and `agentJobs` are those of the node agents, in the whole
cluster and where jobs are served."""


class Condition(Struct, frozen=True):
    """A setting of the chart on which a rule depends."""

    helm: str
    text: str
    """The same for people."""


class ResourceName(Struct, frozen=True):
    """The name of an object to which a rule is limited."""

    helm: str
    text: str
    """The same for people."""


class PolicyRule(Struct, frozen=True, kw_only=True):
    """One rule of a role of the operator."""

    scope: Scope = "jobs"
    group: str = ""
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[ResourceName, ...] = ()
    """Of all names if empty."""
    when: tuple[Condition, ...] = ()
    """All of them must hold."""
    reason: str = ""
    """Why the operator needs it, where the resource does not say it."""


class _Kind(Protocol):
    resource: ClassVar[Resource]


READ: Final = ("get", "list", "watch")
MANAGE: Final = (*READ, "create", "patch", "delete")

_FINALIZERS_REASON: Final = "finalizers: some clusters require it of whoever creates children of the object"

NAME: Final = '{{ include "argosy.name" . }}'
CLUSTER_NAME: Final = '{{ include "argosy.clusterName" . }}'
OWN_NAME: Final = ResourceName(NAME, "`<name>`")

WEBHOOKS: Final = Condition('include "argosy.webhooks" .', "`webhooks.enabled`")
REMOTE_EXEC: Final = Condition(".Values.features.remoteExec", "`features.remoteExec`")
SSH_KEYS: Final = Condition(".Values.features.sshKeys", "`features.sshKeys`")
QUARANTINE: Final = Condition(".Values.quarantine.enabled", "`quarantine.enabled`")
ONE_NAMESPACE: Final = Condition(".Values.watchNamespace", "`watchNamespace`")


def gang_backend(*backends: str) -> Condition:
    """Return the condition that one of these gang schedulers is set."""
    listed = " ".join(f'"{backend}"' for backend in backends)
    text = " or ".join(f"`{backend}`" for backend in backends)
    return Condition(f"has .Values.gang.backend (list {listed})", f"`gang.backend` {text}")


def job_rules(group: str, plural: str, *, patch: bool = False) -> tuple[PolicyRule, ...]:
    """Return what the operator needs for a kind of job; `patch`: it writes defaults into the spec."""
    verbs = ("list", "watch", "patch", "delete") if patch else ("list", "watch", "delete")
    return (
        PolicyRule(
            group=group,
            resources=(plural,),
            verbs=verbs,
            reason="patch: defaults are written into the stored spec" if patch else "",
        ),
        PolicyRule(
            group=group,
            resources=(f"{plural}/status", f"{plural}/finalizers"),
            verbs=("update",),
            reason=_FINALIZERS_REASON,
        ),
    )


def kind_rules(kind: type[_Kind], owns: Iterable[type[_Kind]] = ()) -> tuple[PolicyRule, ...]:
    """Return what the operator needs for a kind without a Workload, and for the kinds of its children."""
    resource = kind.resource
    return (
        PolicyRule(
            group=resource.group,
            resources=(resource.plural,),
            verbs=(*READ, "patch"),
            reason="patch: its finalizer",
        ),
        PolicyRule(
            group=resource.group,
            resources=(f"{resource.plural}/status", f"{resource.plural}/finalizers"),
            verbs=("update",),
            reason=_FINALIZERS_REASON,
        ),
        *(
            PolicyRule(group=child.resource.group, resources=(child.resource.plural,), verbs=MANAGE)
            for child in owns
        ),
    )


EXEC_RULE: Final = PolicyRule(
    resources=("pods/exec",),
    verbs=("get", "create"),
    reason="commands are run in containers of its pods",
)
"""What an API needs, among its own rules, whose reconcilers ask for `Exec`. It lets the operator run anything
in any pod where jobs are served, so no other API has it.

A WebSocket is opened by GET. API servers ask for the verb get, and later ones also for create."""

CREDENTIALS_RULE: Final = PolicyRule(
    resources=("secrets",),
    verbs=("get",),
    reason="credentials that objects name; never listed, and used only where the Secret allows it",
)
"""What an API needs, among its own rules, whose reconcilers name Secrets in `Call` or `View`."""

APP_CHECKPOINT_RULES: Final = (
    PolicyRule(
        resources=("pods",),
        verbs=("patch",),
        reason="pods acknowledge checkpoints by an annotation",
    ),
    PolicyRule(
        group="policy",
        resources=("poddisruptionbudgets",),
        verbs=MANAGE,
        reason="evictions are held back until a checkpoint is saved (`checkpoint.onDrain`)",
    ),
)
"""For an API whose programs may keep checkpoints, among its own rules; see `dialects.checkpoints`."""

CHECKPOINT_RULES: Final = (
    *APP_CHECKPOINT_RULES,
    PolicyRule(
        group=CheckpointBackup.resource.group,
        resources=(CheckpointBackup.resource.plural,),
        verbs=MANAGE,
        reason="checkpoints of processes (`checkpoint.level`)",
    ),
)
"""The same for an API whose jobs may have a single pod, so that its processes can be saved too."""

HOST_LIST_RULES: Final = (
    PolicyRule(
        resources=("configmaps",), verbs=MANAGE, reason="host lists, which launchers are granted to read"
    ),
    PolicyRule(
        resources=("pods",),
        verbs=("patch",),
        reason="launchers acknowledge host lists by an annotation of their pod",
    ),
)
"""For an API whose jobs have a host list, among its own rules; its `JobApi.child_kinds` has ConfigMaps."""


CORE_RULES: Final = (
    PolicyRule(
        scope="cluster",
        group="admissionregistration.k8s.io",
        resources=("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
        names=(ResourceName(CLUSTER_NAME, "`<name>-<namespace>`"),),
        verbs=("get", "patch"),
        when=(WEBHOOKS,),
        reason="the operator adds its CA bundle to its own webhook configurations",
    ),
    PolicyRule(
        scope="cluster",
        group="apiextensions.k8s.io",
        resources=("customresourcedefinitions",),
        verbs=("list", "watch"),
        reason="a kind is watched as soon as its CRD exists; without this rule every kind is tried",
    ),
    PolicyRule(
        scope="cluster",
        resources=("nodes",),
        verbs=READ,
        reason="a node that is missing from the cache is read before its pods count as lost",
    ),
    PolicyRule(
        scope="cluster",
        resources=("nodes",),
        verbs=("patch",),
        when=(QUARANTINE,),
        reason="annotations of nodes in quarantine",
    ),
    PolicyRule(
        scope="cluster",
        resources=("pods",),
        verbs=("list", "watch"),
        when=(ONE_NAMESPACE, gang_backend("builtin", "auto")),
        reason="free capacity of a node depends on the pods of all namespaces",
    ),
    PolicyRule(resources=("pods",), verbs=(*READ, "create", "delete")),
    PolicyRule(resources=("services",), verbs=MANAGE),
    PolicyRule(resources=("events",), verbs=("create", "patch")),
    PolicyRule(
        group="scheduling.volcano.sh",
        resources=("podgroups",),
        verbs=MANAGE,
        when=(gang_backend("volcano", "auto"),),
    ),
    PolicyRule(
        group="scheduling.k8s.io",
        resources=("podgroups",),
        verbs=MANAGE,
        when=(gang_backend("kubernetes", "auto"),),
    ),
    PolicyRule(
        group="scheduling.x-k8s.io",
        resources=("podgroups",),
        verbs=MANAGE,
        when=(gang_backend("scheduler-plugins", "auto"),),
    ),
    PolicyRule(resources=("serviceaccounts",), verbs=MANAGE, when=(REMOTE_EXEC,)),
    PolicyRule(
        group="rbac.authorization.k8s.io",
        resources=("roles", "rolebindings"),
        verbs=MANAGE,
        when=(REMOTE_EXEC,),
    ),
    PolicyRule(
        resources=("pods/exec",),
        verbs=("get", "create"),
        when=(REMOTE_EXEC,),
        reason="launchers are granted it over the pods of their job, and only its holder may grant a right",
    ),
    PolicyRule(
        resources=("secrets",),
        verbs=("get", "create"),
        when=(SSH_KEYS,),
        reason="never listed; of an existing Secret only the metadata is read",
    ),
    PolicyRule(scope="operator", group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
    PolicyRule(
        scope="operator",
        group="coordination.k8s.io",
        resources=("leases",),
        names=(OWN_NAME,),
        verbs=("get", "patch"),
    ),
    PolicyRule(scope="operator", resources=("secrets",), verbs=("create",)),
    PolicyRule(
        scope="operator",
        resources=("secrets",),
        names=(ResourceName(f"{NAME}-tls", "`<name>-tls`"),),
        verbs=("get", "update"),
        reason="certificate and token keys of the endpoint for pods",
    ),
)
"""What the operator needs whatever APIs it serves."""
