"""Validates probes, hooks, security contexts, field references and node affinity of pods."""

from collections.abc import Iterator, Sequence

from argosy.local.schema.errors import (
    FieldError,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    unsupported,
)
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str, get_texts
from argosy.local.schema.validation.names import (
    label_value_problems,
    port_name_problems,
    port_problems,
    qualified_name_problems,
)

TERMINATION_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HIGHEST_ID = 2147483647
_ENV_FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)


def container_part_errors(container: Json, path: str, *, allows_probes: bool = True) -> Iterator[FieldError]:
    """Yield the errors of a container's probes, hooks and termination message.

    `allows_probes` is False for init containers that run to completion: they have no probes and hooks.
    """
    policy = container.get("terminationMessagePolicy")
    yield from unsupported(f"{path}.terminationMessagePolicy", policy, TERMINATION_MESSAGE_POLICIES)
    yield from security_errors(get_map(container, "securityContext"), f"{path}.securityContext")
    for field in ("lifecycle", *_PROBES):
        if not isinstance(container.get(field), dict):
            continue
        if not allows_probes:
            message = "may not be set for init containers without restartPolicy=Always"
            yield forbidden(f"{path}.{field}", message)
        elif field == "lifecycle":
            for hook in ("postStart", "preStop"):
                if isinstance(get_map(container, field).get(hook), dict):
                    yield from _handler_errors(get_map(container, field, hook), f"{path}.{field}.{hook}")
        else:
            yield from _probe_errors(
                get_map(container, field), f"{path}.{field}", ready=field == "readinessProbe"
            )


def _probe_errors(probe: Json, path: str, *, ready: bool) -> Iterator[FieldError]:
    yield from _handler_errors(probe, path)
    for field in _COUNTS:
        value = probe.get(field)
        if isinstance(value, int) and value < 0:
            yield invalid(f"{path}.{field}", value, "must be greater than or equal to 0")
    if not ready and probe.get("successThreshold") != 1:
        yield invalid(f"{path}.successThreshold", probe.get("successThreshold"), "must be 1")


def _handler_errors(handler: Json, path: str) -> Iterator[FieldError]:
    handlers = [name for name in _HANDLERS if isinstance(handler.get(name), dict)]
    if not handlers:
        yield required(path, "must specify a handler type")
    for extra in handlers[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    for name in handlers[:1]:
        action, where = get_map(handler, name), f"{path}.{name}"
        if name == "exec" and not action.get("command"):
            yield required(f"{where}.command")
        if name in ("httpGet", "tcpSocket"):
            port = action.get("port")
            problems = port_name_problems(port) if isinstance(port, str) else port_problems(port)
            yield from invalid_each(f"{where}.port", port, problems)
        if name == "httpGet" and get_str(action, "scheme") not in ("HTTP", "HTTPS"):
            yield not_supported(f"{where}.scheme", get_str(action, "scheme"), ("HTTP", "HTTPS"))


def security_errors(context: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of user and group ids."""
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(field)
        if isinstance(value, int) and not 0 <= value <= _HIGHEST_ID:
            yield invalid(f"{path}.{field}", value, f"must be between 0 and {_HIGHEST_ID}, inclusive")


def field_source_errors(
    reference: Json, path: str, allowed: Sequence[str] = _ENV_FIELDS
) -> Iterator[FieldError]:
    """Yield the errors of a reference to a field of the pod, which must be one of `allowed`."""
    name, where = get_str(reference, "fieldPath"), f"{path}.fieldPath"
    bare = name.partition("[")[0]
    if not name:
        yield required(where)
    elif bare not in (*_ENV_FIELDS, "metadata.labels", "metadata.annotations"):
        yield invalid(where, name, f"error converting fieldPath: field label not supported: {name}")
    elif name not in allowed and bare == name:
        yield not_supported(where, name, sorted(allowed))


def node_affinity_errors(affinity: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of required node affinity."""
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    if not isinstance(affinity.get(needed), dict):
        return
    terms, where = get_maps(affinity, needed, "nodeSelectorTerms"), f"{path}.{needed}.nodeSelectorTerms"
    if not terms:
        yield required(where, "must have at least one node selector term")
    for index, term in enumerate(terms):
        for number, requirement in enumerate(get_maps(term, "matchExpressions")):
            yield from _requirement_errors(requirement, f"{where}[{index}].matchExpressions[{number}]")


def _requirement_errors(requirement: Json, path: str) -> Iterator[FieldError]:
    values = get_texts(requirement, "values")
    match get_str(requirement, "operator"):
        case "In" | "NotIn":
            if not values:
                yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{path}.values", message)
        case "Gt" | "Lt":
            if len(values) != 1:
                message = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield required(f"{path}.values", message)
        case other:
            yield invalid(f"{path}.operator", other, "not a valid selector operator")
    key = get_str(requirement, "key")
    yield from invalid_each(f"{path}.key", key, qualified_name_problems(key))
    for index, value in enumerate(values):
        yield from invalid_each(f"{path}.values[{index}]", value, label_value_problems(value))
