"""Looks into pod templates, which may hold anything."""

from collections.abc import Mapping

from argosy.workload.model import Json


def containers(template: Json | None) -> list[Json]:
    return _listed(template, "containers")


def init_containers(template: Json | None) -> list[Json]:
    return _listed(template, "initContainers")


def container_named(template: Json | None, name: str) -> Json | None:
    return next((one for one in containers(template) if one.get("name") == name), None)


def default_container(template: Json | None, name: str) -> Json:
    """The container of this name, else the first."""
    found = containers(template)
    return container_named(template, name) or (found[0] if found else {})


def ports(container: Json) -> list[tuple[str, int]]:
    """Name (or none) and number of each port."""
    listed = container.get("ports")
    found = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    return [
        (str(one.get("name") or ""), number)
        for one in found
        if isinstance(number := one.get("containerPort"), int) and not isinstance(number, bool)
    ]


def port_numbers(container: Json) -> list[int]:
    return [number for _, number in ports(container)]


def port_named(container: Json, name: str) -> int | None:
    return next((number for one, number in ports(container) if one == name), None)


def pod_spec(template: Json | None) -> Json:
    spec = template.get("spec") if isinstance(template, Mapping) else None
    return spec if isinstance(spec, Mapping) else {}


def uses_host_network(template: Json | None) -> bool:
    return bool(pod_spec(template).get("hostNetwork"))


def bare(template: object) -> Json:
    """What a definition needs of a template to stay valid, and pods to keep their labels: the names and ports
    of containers, and metadata."""
    whole = template if isinstance(template, Mapping) else {}
    kept = [{name: one[name] for name in ("name", "ports") if name in one} for one in containers(whole)]
    metadata = {"metadata": whole["metadata"]} if "metadata" in whole else {}
    return {**metadata, "spec": {"containers": kept}}


def _listed(template: Json | None, part: str) -> list[Json]:
    found = pod_spec(template).get(part)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
