"""Small Kubernetes objects as JSON, for tests that send requests to an API server."""

Json = dict[str, object]

CONFIG_MAPS = "/api/v1/namespaces/$ns/configmaps"
PODS = "/api/v1/namespaces/$ns/pods"
SERVICES = "/api/v1/namespaces/$ns/services"
SECRETS = "/api/v1/namespaces/$ns/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/$ns/leases"
NAMESPACES = "/api/v1/namespaces"
DEPLOYMENTS = "/apis/apps/v1/namespaces/$ns/deployments"
JOBS = "/apis/batch/v1/namespaces/$ns/jobs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/$ns.example.com/v1/namespaces/$ns/widgets"


def config_map(name: str = "a", data: dict[str, str] | None = None, **metadata: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"key": "value"} if data is None else data,
    }


def pod(
    name: str = "a", *, container: Json | None = None, metadata: Json | None = None, **spec: object
) -> Json:
    first: Json = {"name": "main", "image": "busybox", **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"containers": [first], **spec},
    }


def service(name: str = "a", **spec: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "a"}, **spec},
    }


def secret(kind: str = "Opaque", **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": kind, "data": data}


def lease(**metadata: object) -> Json:
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**kind, "metadata": {"name": "a", **metadata}, "spec": {"holderIdentity": "me"}}


def owner(**changes: object) -> Json:
    """A reference to an owner that does not exist."""
    uid = "00000000-0000-0000-0000-00000000000a"
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid, **changes}


def deployment(name: str = "a", **spec: object) -> Json:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def job(name: str = "a", **spec: object) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


WIDGET_SPEC: Json = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "replicas": {"type": "integer"},
        "title": {"type": "string", "maxLength": 8, "pattern": "^[a-z]+$"},
        "parts": {
            "type": "array",
            "maxItems": 4,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "weight": {"type": "integer", "default": 1}},
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "options": {"type": "object", "additionalProperties": {"type": "string"}},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition(spec: Json | None = None, **more: object) -> Json:
    """A CRD `widgets` in a group that only this case uses."""
    schema = {
        "type": "object",
        "properties": {
            "spec": WIDGET_SPEC if spec is None else spec,
            "status": {
                "type": "object",
                "properties": {
                    "phase": {"type": "string"},
                    "replicas": {"type": "integer"},
                    "selector": {"type": "string"},
                },
            },
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.$ns.example.com"},
        "spec": {
            "group": "$ns.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{**version, **more}],
        },
    }


def widget(name: str = "a", metadata: Json | None = None, **spec: object) -> Json:
    return {
        "apiVersion": "$ns.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"size": 3, **spec},
    }
