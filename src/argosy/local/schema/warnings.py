"""Warnings about valid objects, as Kubernetes returns them."""

from collections.abc import Iterator

from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str, get_strings
from argosy.local.schema.validation.metadata import STANDARD_FINALIZERS
from argosy.local.schema.validation.names import label_problems


def warnings(group: str, kind: str, obj: Json, *, created: bool) -> Iterator[str]:
    """Yield the warnings about an object that is being created or updated."""
    match group, kind:
        case "", "Pod" if created:
            yield from _name(obj, "this is used in the Pod's hostname")
            yield from _pod_spec(get_map(obj, "spec"), "spec")
        case "batch", "Job":
            if created:
                yield from _name(obj, "this is used in Pod names and hostnames")
            yield from _pod_spec(get_map(obj, "spec", "template", "spec"), "spec.template.spec")
        case "", "Service":
            yield from _service(get_map(obj, "spec"))


def finalizer_warnings(obj: Json, old: Json | None) -> Iterator[str]:
    """Yield warnings about new finalizers of a custom resource without a domain."""
    message = (
        "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    )
    existing = {*STANDARD_FINALIZERS, *get_strings(old or {}, "metadata", "finalizers")}
    for name in sorted({*get_strings(obj, "metadata", "finalizers")} - existing):
        if "/" not in name:
            yield f'metadata.finalizers: "{name}": {message}'


def _name(obj: Json, why: str) -> Iterator[str]:
    if problems := label_problems(get_str(obj, "metadata", "name")):
        message = f"{why}, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {message}: [{' '.join(problems)}]"


def _pod_spec(spec: Json, path: str) -> Iterator[str]:
    for field in ("initContainers", "containers"):
        for index, container in enumerate(get_maps(spec, field)):
            yield from _variables(container, f"{path}.{field}[{index}]")
    period = spec.get("terminationGracePeriodSeconds")
    if isinstance(period, int) and period < 0:
        message = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{path}.terminationGracePeriodSeconds: {message}"


def _variables(container: Json, path: str) -> Iterator[str]:
    """Yield warnings about a variable that is set twice, unless the second value refers to the first."""
    names: set[str] = set()
    for index, variable in enumerate(get_maps(container, "env")):
        name, value = get_str(variable, "name"), get_str(variable, "value")
        reference = f"$({name})"
        if name in names and ("valueFrom" in variable or value == reference or reference not in value):
            message = f'hides previous definition of "{name}", which may be dropped when using apply'
            yield f"{path}.env[{index}]: {message}"
        names.add(name)


def _service(spec: Json) -> Iterator[str]:
    kind = get_str(spec, "type")
    if kind == "ClusterIP" and spec.get("clusterIP") == "None":
        for field in ("loadBalancerIP", "externalIPs"):
            if spec.get(field):
                yield f"spec.{field} is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    elif spec.get("externalIPs") and kind != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if kind == "ExternalName" and spec.get("externalIPs"):
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
