"""The columns that `kubectl get` shows for built-in kinds."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from argosy.local.schema.model import Json
from argosy.local.schema.tables import rows, storage_rows
from argosy.local.schema.tables.cells import Column, column, selector_text
from argosy.local.schema.tables.pod_row import POD_COLUMNS, pod_cells
from argosy.local.schema.unstructured import number, part


class Printer(Struct, frozen=True):
    columns: tuple[Column, ...]
    cells: Callable[[Json, datetime], Sequence[object]]


NAME = column("Name", format="name")
AGE = column("Age")
CONTAINERS = (column("Containers", wide=1), column("Images", wide=1))
SELECTOR = column("Selector", wide=1)


_BINDING = Printer(
    (
        NAME,
        column("Role"),
        AGE,
        column("Users", wide=1),
        column("Groups", wide=1),
        column("ServiceAccounts", wide=1),
    ),
    rows.binding,
)
_SET = (
    NAME,
    *(column(n, type="integer") for n in ("Desired", "Current", "Ready")),
    AGE,
    *CONTAINERS,
    SELECTOR,
)
_EVENT = Printer(
    (
        *(column(n) for n in ("Last Seen", "Type", "Reason", "Object")),
        column("Subobject", wide=1),
        column("Source", wide=1),
        column("Message"),
        column("First Seen", wide=1),
        column("Count", wide=1),
        column("Name", format="name", wide=1),
    ),
    rows.event,
)
_AUTOSCALER = Printer(
    (NAME, *(column(n) for n in ("Reference", "Targets", "MinPods", "MaxPods", "Replicas")), AGE),
    rows.autoscaler,
)
_WEBHOOKS = Printer((NAME, column("Webhooks", type="integer"), AGE), rows.simple(rows.count_of("webhooks")))

PRINTERS: Mapping[tuple[str, str], Printer] = {
    ("", "Pod"): Printer(POD_COLUMNS, pod_cells),
    ("", "PodTemplate"): Printer(
        (NAME, column("Containers"), column("Images"), column("Pod Labels")), rows.pod_template
    ),
    ("policy", "PodDisruptionBudget"): Printer(
        (
            NAME,
            column("Min Available"),
            column("Max Unavailable"),
            column("Allowed Disruptions", type="integer"),
            AGE,
        ),
        rows.simple(
            rows.amount_of("spec", "minAvailable"),
            rows.amount_of("spec", "maxUnavailable"),
            lambda item: number(item, "status", "disruptionsAllowed"),
        ),
    ),
    ("", "ReplicationController"): Printer(_SET, rows.replicas),
    ("apps", "ReplicaSet"): Printer(_SET, rows.replicas),
    ("apps", "DaemonSet"): Printer(
        (
            NAME,
            *(column(n, type="integer") for n in ("Desired", "Current", "Ready", "Up-to-date", "Available")),
            column("Node Selector"),
            AGE,
            *CONTAINERS,
            SELECTOR,
        ),
        rows.daemon_set,
    ),
    ("apps", "Deployment"): Printer(
        (NAME, column("Ready"), column("Up-to-date"), column("Available"), AGE, *CONTAINERS, SELECTOR),
        rows.deployment,
    ),
    ("apps", "StatefulSet"): Printer((NAME, column("Ready"), AGE, *CONTAINERS), rows.stateful_set),
    ("apps", "ControllerRevision"): Printer(
        (NAME, column("Controller"), column("Revision"), AGE), rows.revision
    ),
    ("batch", "Job"): Printer(
        (NAME, column("Status"), column("Completions"), column("Duration"), AGE, *CONTAINERS, SELECTOR),
        rows.job,
    ),
    ("batch", "CronJob"): Printer(
        (
            NAME,
            column("Schedule"),
            column("Timezone"),
            column("Suspend", type="boolean"),
            column("Active", type="integer"),
            column("Last Schedule"),
            AGE,
            *CONTAINERS,
            SELECTOR,
        ),
        rows.cron_job,
    ),
    ("", "Service"): Printer(
        (NAME, *(column(n) for n in ("Type", "Cluster-IP", "External-IP", "Port(s)")), AGE, SELECTOR),
        rows.service,
    ),
    ("networking.k8s.io", "Ingress"): Printer(
        (NAME, *(column(n) for n in ("Class", "Hosts", "Address", "Ports")), AGE), rows.ingress
    ),
    ("networking.k8s.io", "IngressClass"): Printer(
        (NAME, column("Controller"), column("Parameters"), AGE), rows.ingress_class
    ),
    ("networking.k8s.io", "NetworkPolicy"): Printer(
        (NAME, column("Pod-Selector"), AGE),
        rows.simple(lambda item: selector_text(part(item, "spec").get("podSelector"))),
    ),
    ("", "Endpoints"): Printer((NAME, column("Endpoints"), AGE), rows.endpoints),
    ("discovery.k8s.io", "EndpointSlice"): Printer(
        (NAME, column("AddressType"), column("Ports"), column("Endpoints"), AGE), rows.endpoint_slice
    ),
    ("", "Node"): Printer(
        (
            NAME,
            column("Status"),
            column("Roles"),
            AGE,
            column("Version"),
            *(
                column(n, wide=1)
                for n in ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")
            ),
        ),
        rows.node,
    ),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("", "Namespace"): Printer((NAME, column("Status"), AGE), rows.simple(rows.text_of("status", "phase"))),
    ("", "Secret"): Printer(
        (NAME, column("Type"), column("Data"), AGE), rows.simple(rows.text_of("type"), rows.count_of("data"))
    ),
    ("", "ConfigMap"): Printer((NAME, column("Data"), AGE), rows.simple(rows.data_count)),
    ("", "ServiceAccount"): Printer((NAME, AGE), rows.simple()),
    ("", "PersistentVolume"): Printer(
        (
            NAME,
            *(
                column(n)
                for n in (
                    "Capacity",
                    "Access Modes",
                    "Reclaim Policy",
                    "Status",
                    "Claim",
                    "StorageClass",
                    "VolumeAttributesClass",
                    "Reason",
                )
            ),
            AGE,
            column("VolumeMode", wide=1),
        ),
        storage_rows.volume,
    ),
    ("", "PersistentVolumeClaim"): Printer(
        (
            NAME,
            *(
                column(n)
                for n in (
                    "Status",
                    "Volume",
                    "Capacity",
                    "Access Modes",
                    "StorageClass",
                    "VolumeAttributesClass",
                )
            ),
            AGE,
            column("VolumeMode", wide=1),
        ),
        storage_rows.claim,
    ),
    ("", "ResourceQuota"): Printer((NAME, column("Request"), column("Limit"), AGE), rows.quota),
    ("autoscaling", "HorizontalPodAutoscaler"): _AUTOSCALER,
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("coordination.k8s.io", "Lease"): Printer(
        (NAME, column("Holder"), AGE), rows.simple(rows.text_of("spec", "holderIdentity"))
    ),
    ("storage.k8s.io", "StorageClass"): Printer(
        (
            NAME,
            *(
                column(n)
                for n in ("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion")
            ),
            AGE,
        ),
        storage_rows.storage_class,
    ),
    ("scheduling.k8s.io", "PriorityClass"): Printer(
        (
            NAME,
            column("Value", type="integer"),
            column("Global-Default", type="boolean"),
            AGE,
            column("PreemptionPolicy"),
        ),
        rows.priority,
    ),
    ("node.k8s.io", "RuntimeClass"): Printer(
        (NAME, column("Handler"), AGE), rows.simple(rows.text_of("handler"))
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _WEBHOOKS,
}
