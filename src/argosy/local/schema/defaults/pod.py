"""Defaults of pods and pod templates."""

from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_MODES = ("configMap", "secret", "projected", "downwardAPI")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def default_pod(pod: Json) -> None:
    """Set the defaults of a pod, in place."""
    spec = get_map(pod, "spec")
    default_pod_spec(spec)
    for kind in ("containers", "initContainers"):
        for container in get_maps(spec, kind):
            _default_requests(get_map(container, "resources"))
            if spec.get("hostNetwork") is True:
                for port in get_maps(container, "ports"):
                    port.setdefault("hostPort", port.get("containerPort", 0))
    resources = get_map(spec, "resources")
    if resources:
        _default_requests(resources)
    spec.setdefault("enableServiceLinks", True)
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    _default_addresses(get_map(pod, "status"))


def _default_addresses(status: Json) -> None:
    """Make podIP and podIPs equal; if they differ, podIP applies."""
    addresses, address = get_maps(status, "podIPs"), status.get("podIP")
    if address and (not addresses or address != addresses[0].get("ip")):
        status["podIPs"] = [{"ip": address}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip", "")


def default_pod_spec(spec: Json) -> None:
    """Set the defaults that templates have too, in place."""
    setdefault = spec.setdefault
    setdefault("restartPolicy", "Always")
    setdefault("terminationGracePeriodSeconds", 30)
    setdefault("dnsPolicy", "ClusterFirst")
    setdefault("securityContext", {})
    setdefault("schedulerName", "default-scheduler")
    # The deprecated field has the same value.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for kind in _CONTAINERS:
        if kind in spec:
            for container in get_maps(spec, kind):
                _default_container(container)
    if "volumes" in spec:
        for volume in get_maps(spec, "volumes"):
            _default_volume(volume)


def _default_container(container: Json) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image"))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for name in _PROBES:
        if name in container:
            _default_probe(get_map(container, name))
    if "lifecycle" in container:
        for hook in _HOOKS:
            _default_http(get_map(container, "lifecycle", hook))
    if "env" in container:
        for variable in get_maps(container, "env"):
            if "valueFrom" in variable:
                reference = get_map(variable, "valueFrom", "fieldRef")
                if reference:
                    reference.setdefault("apiVersion", "v1")


def _pull_policy(image: object) -> str:
    """Return Always for the tag `latest`, which is the default; IfNotPresent for a digest or another tag."""
    name = image if isinstance(image, str) else ""
    if "@" in name:
        return "IfNotPresent"
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return "Always" if name and (not colon or tag == "latest") else "IfNotPresent"


def _default_probe(probe: Json) -> None:
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(name):
            probe[name] = value
    _default_http(probe)
    grpc = probe.get("grpc")
    if isinstance(grpc, dict) and grpc.get("service") is None:
        grpc["service"] = ""


def _default_http(handler: Json) -> None:
    action = handler.get("httpGet")
    if isinstance(action, dict):
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _default_requests(resources: Json) -> None:
    limits = get_map(resources, "limits")
    if limits:
        requests = get_map(resources, "requests")
        resources["requests"] = {**requests, **{k: v for k, v in limits.items() if k not in requests}}


def _default_volume(volume: Json) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
        return
    for kind in _MODES:
        source = volume.get(kind)
        if isinstance(source, dict):
            source.setdefault("defaultMode", 420)
    host = volume.get("hostPath")
    if isinstance(host, dict):
        host.setdefault("type", "")
    items = [*get_maps(volume, "downwardAPI", "items")]
    for source in get_maps(volume, "projected", "sources"):
        token = source.get("serviceAccountToken")
        if isinstance(token, dict):
            token.setdefault("expirationSeconds", 3600)
        items += get_maps(source, "downwardAPI", "items")
    for item in items:
        reference = get_map(item, "fieldRef")
        if reference:
            reference.setdefault("apiVersion", "v1")
    image = volume.get("image")
    if isinstance(image, dict):
        image.setdefault("pullPolicy", _pull_policy(image.get("reference")))
    claim = get_map(volume, "ephemeral", "volumeClaimTemplate", "spec")
    if claim:
        claim.setdefault("volumeMode", "Filesystem")
