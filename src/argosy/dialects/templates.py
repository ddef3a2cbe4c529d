"""Reads pod templates, which may contain anything."""

from collections.abc import Mapping

from argosy.workload.model import Json


def containers(template: Json | None) -> list[Json]:
    return _entries(template, "containers")


def init_containers(template: Json | None) -> list[Json]:
    return _entries(template, "initContainers")


def container_named(template: Json | None, name: str) -> Json | None:
    return next((container for container in containers(template) if container.get("name") == name), None)


def default_container(template: Json | None, name: str) -> Json:
    """Return the container of this name, or else the first."""
    listed = containers(template)
    return container_named(template, name) or (listed[0] if listed else {})


def ports(container: Json) -> list[tuple[str, int]]:
    """Return the name, which may be empty, and the number of each port."""
    listed = container.get("ports")
    entries = [port for port in listed if isinstance(port, Mapping)] if isinstance(listed, list) else []
    return [
        (str(port.get("name") or ""), number)
        for port in entries
        if isinstance(number := port.get("containerPort"), int) and not isinstance(number, bool)
    ]


def port_numbers(container: Json) -> list[int]:
    return [number for _, number in ports(container)]


def port_named(container: Json, name: str) -> int | None:
    return next((number for port_name, number in ports(container) if port_name == name), None)


def pod_spec(template: Json | None) -> Json:
    spec = template.get("spec") if isinstance(template, Mapping) else None
    return spec if isinstance(spec, Mapping) else {}


def uses_host_network(template: Json | None) -> bool:
    return bool(pod_spec(template).get("hostNetwork"))


def without_details(template: object) -> Json:
    """Return a template with metadata, and names and ports of containers, only: the spec stays valid, and
    pods keep their labels."""
    whole = template if isinstance(template, Mapping) else {}
    kept = [
        {name: container[name] for name in ("name", "ports") if name in container}
        for container in containers(whole)
    ]
    metadata = {"metadata": whole["metadata"]} if "metadata" in whole else {}
    return {**metadata, "spec": {"containers": kept}}


def _entries(template: Json | None, part: str) -> list[Json]:
    listed = pod_spec(template).get(part)
    return [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
