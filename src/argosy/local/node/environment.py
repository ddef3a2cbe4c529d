"""Builds a container's environment variables and command line, as the kubelet does.

Pure: referenced objects are looked up through `Sources`. A missing reference that is not optional raises
MissingError, which the pod's status shows as CreateContainerConfigError until the object exists.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from argosy.kinds.quantity import parse_quantity
from argosy.local.node.pod_types import Container, EnvSource, FieldRef, Pod, ResourceFieldRef
from argosy.local.service_types import Service


class ConfigError(Exception):
    """A container's configuration is invalid; its status shows CreateContainerConfigError."""


class MissingError(ConfigError):
    """A container refers to something that does not exist."""


Lookup = Callable[[str], Mapping[str, bytes] | None]


class Sources(NamedTuple):
    """The objects and addresses that values of variables come from."""

    config_map: Lookup
    secret: Lookup
    services: Iterable[Service]
    node_name: str
    host_ip: str
    pod_ip: str
    node_allocatable: Mapping[str, Decimal]


_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")


def expand_references(text: str, values: Mapping[str, str]) -> str:
    """Replace $(NAME) if NAME is defined; $$ is a literal dollar sign."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return values.get(match[2], match[0])

    return _REFERENCE.sub(replacement, text)


def build_environment(pod: Pod, container: Container, sources: Sources) -> dict[str, str]:
    values = service_variables(pod, sources.services)
    variables: dict[str, str] = {}
    for entry in container.env_from:
        for kind, reference, lookup in (
            ("configmap", entry.config_map_ref, sources.config_map),
            ("secret", entry.secret_ref, sources.secret),
        ):
            if reference:
                content = lookup(reference.name)
                if content is None and not reference.optional:
                    raise MissingError(f'{kind} "{reference.name}" not found')
                for key, content_value in (content or {}).items():
                    variables[entry.prefix + key] = content_value.decode(errors="replace")
    for variable in container.env:
        if variable.value_from:
            value = _resolve(pod, container, variable.value_from, sources)
            if value is None:
                continue
            variables[variable.name] = value
        else:
            variables[variable.name] = expand_references(variable.value or "", values | variables)
    return values | variables


def build_command(container: Container, values: Mapping[str, str]) -> list[str]:
    return [expand_references(word, values) for word in [*container.command, *container.args]]


def field_value(pod: Pod, reference: FieldRef, sources: Sources) -> str:
    """Return the value of a downward API field; raises MissingError if it is not supported."""
    path, meta = reference.field_path, pod.metadata
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if keyed:
        return (meta.labels if keyed[1] == "labels" else meta.annotations).get(keyed[2], "")
    simple: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: meta.name,
        "metadata.namespace": lambda: meta.namespace,
        "metadata.uid": lambda: meta.uid,
        "metadata.labels": lambda: _quote_values(meta.labels),
        "metadata.annotations": lambda: _quote_values(meta.annotations),
        "spec.nodeName": lambda: sources.node_name,
        "spec.serviceAccountName": lambda: pod.spec.service_account_name,
        "status.hostIP": lambda: sources.host_ip,
        "status.hostIPs": lambda: sources.host_ip,
        "status.podIP": lambda: sources.pod_ip,
        "status.podIPs": lambda: sources.pod_ip,
    }
    if path not in simple:
        raise MissingError(f"unsupported fieldPath: {path}")
    return simple[path]()


def resource_value(pod: Pod, container: Container, reference: ResourceFieldRef, sources: Sources) -> str:
    """Return a limit or request in units of the divisor, rounded up; the node's capacity if there is none."""
    every = [*pod.spec.containers, *pod.spec.init_containers]
    chosen = next((other for other in every if other.name == reference.container_name), container)
    group, _, name = reference.resource.partition(".")
    values = chosen.resources.limits if group == "limits" else chosen.resources.requests
    if name in values:
        amount = parse_quantity(values[name])
    elif group == "requests":
        limit = chosen.resources.limits.get(name)
        amount = parse_quantity(limit) if limit is not None else Decimal(0)
    else:
        amount = sources.node_allocatable.get(name, Decimal(0))
    divisor = parse_quantity(reference.divisor) or Decimal(1)
    return str(math.ceil(amount / divisor))


def service_variables(pod: Pod, services: Iterable[Service]) -> dict[str, str]:
    """Return the variables for the services of the namespace, and for the API server."""
    values: dict[str, str] = {}
    for service in services:
        api_server = service.metadata.namespace == "default" and service.metadata.name == "kubernetes"
        own = service.metadata.namespace == pod.metadata.namespace and pod.spec.enable_service_links
        if (api_server or own) and not service.is_headless and service.spec.ports:
            values |= _variables_of(service)
    return values


def _variables_of(service: Service) -> dict[str, str]:
    prefix = re.sub(r"[^A-Za-z0-9_]", "_", service.metadata.name).upper()
    address, ports = service.spec.cluster_ip, service.spec.ports
    values = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0].port)}
    for port in ports:
        if port.name:
            values[f"{prefix}_SERVICE_PORT_{port.name.replace('-', '_').upper()}"] = str(port.port)
    first = f"{ports[0].protocol.lower()}://{address}:{ports[0].port}"
    values[f"{prefix}_PORT"] = first
    for port in ports:
        base = f"{prefix}_PORT_{port.port}_{port.protocol.upper()}"
        values[base] = f"{port.protocol.lower()}://{address}:{port.port}"
        values[f"{base}_PROTO"] = port.protocol.lower()
        values[f"{base}_PORT"] = str(port.port)
        values[f"{base}_ADDR"] = address
    return values


def _resolve(pod: Pod, container: Container, source: EnvSource, sources: Sources) -> str | None:
    if source.field_ref:
        return field_value(pod, source.field_ref, sources)
    if source.resource_field_ref:
        return resource_value(pod, container, source.resource_field_ref, sources)
    for kind, reference, lookup in (
        ("configmap", source.config_map_key_ref, sources.config_map),
        ("secret", source.secret_key_ref, sources.secret),
    ):
        if reference:
            content = lookup(reference.name)
            if content is None:
                if reference.optional:
                    return None
                raise MissingError(f'{kind} "{reference.name}" not found')
            if reference.key not in content:
                if reference.optional:
                    return None
                source_kind = "ConfigMap" if kind == "configmap" else "Secret"
                raise MissingError(
                    f"couldn't find key {reference.key} in {source_kind}"
                    f" {pod.metadata.namespace}/{reference.name}"
                )
            return content[reference.key].decode(errors="replace")
    return ""


def _quote_values(values: Mapping[str, str]) -> str:
    def text(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    return "\n".join(f"{key}={text(value)}" for key, value in sorted(values.items()))
