"""Rejects jobs whose pods would be too large to be stored, before any pod is rendered.

Pods of many frameworks have the addresses of all others, so a job of a few kilobytes can have pods of
megabytes. etcd rejects requests of more than 1.5 MiB, of which the API server and the kubelet need a part for
managed fields and status; files are annotations, for which Kubernetes allows 256 KiB per pod. Sizes are
calculated from lengths and numbers of replicas without building the lists, so rejecting the largest job takes
no longer than accepting a small one.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.model import Problem, Role, Workload

MAX_POD_BYTES: Final = 1280 * 1024
MAX_ANNOTATION_BYTES: Final = 256 * 1024
"""Maximum size of keys and values of all annotations of a pod."""
POD_OVERHEAD_BYTES: Final = 4096
"""Added to every pod: labels, owner, helper container, volumes."""
CONTAINER_OVERHEAD_BYTES: Final = 512
"""Added to every container: variables with the pod's identity, and mounts."""


class ListBytes(Struct, frozen=True):
    """Bytes of JSON that a framework adds to a pod and that grow with the size of the job."""

    per_container: int = 0
    """In each container that gets the framework's variables."""
    ports: int = 0
    """In one container of the pod."""
    files: int = 0
    """As annotations of the pod; exact, since their limit is exact."""
    env_container: str = ""
    """The only container that gets the variables; empty: all containers get them."""


def with_pod_bytes(workload: Workload, lists: Callable[[Workload, Role], ListBytes]) -> Workload:
    """Return the workload with the size of each role's pods, given what its framework adds."""
    roles: dict[str, Role] = {}
    for name, role in workload.roles.items():
        added = lists(workload, role)
        annotations = _annotation_bytes(workload, role) + added.files
        size = _pod_bytes(role, added) + annotations
        roles[name] = replace(role, pod_bytes=size, annotation_bytes=annotations)
    return replace(workload, roles=roles)


def problems(workload: Workload) -> Iterator[Problem]:
    """Yield the role with the largest pods, if they are too large to be stored."""
    roles = workload.roles.values()
    largest = max(roles, key=lambda role: role.pod_bytes, default=None)
    if largest is not None and largest.pod_bytes > MAX_POD_BYTES:
        yield _too_large(workload, largest, "a pod", largest.pod_bytes, MAX_POD_BYTES)
        return
    largest = max(roles, key=lambda role: role.annotation_bytes, default=None)
    if largest is not None and largest.annotation_bytes > MAX_ANNOTATION_BYTES:
        what = "the files and annotations of a pod"
        yield _too_large(workload, largest, what, largest.annotation_bytes, MAX_ANNOTATION_BYTES)


def _too_large(workload: Workload, role: Role, what: str, size: int, limit: int) -> Problem:
    lists = f"including the addresses of {workload.total_pods} pods"
    message = f"{what} of this role would take {_kib(size)}, {lists}; must be at most {_kib(limit)}"
    return Problem(f"{workload.semantics.roles_path}.{role.name}", message)


def _pod_bytes(role: Role, lists: ListBytes) -> int:
    """Return the size of a pod without its annotations."""
    spec = role.template.get("spec")
    written = spec if isinstance(spec, dict) else {}
    names = [
        container.get("name") if isinstance(container, dict) else None
        for part in ("initContainers", "containers")
        for container in written.get(part) or ()
    ]
    with_lists = sum(1 for name in names if not lists.env_container or name == lists.env_container)
    return (
        POD_OVERHEAD_BYTES
        + CONTAINER_OVERHEAD_BYTES * len(names)
        + len(msgspec.json.encode(written))
        + lists.ports
        + lists.per_container * with_lists
    )


def _annotation_bytes(workload: Workload, role: Role) -> int:
    metadata = role.template.get("metadata")
    written = metadata.get("annotations") if isinstance(metadata, dict) else None
    annotations = {**(written if isinstance(written, dict) else {}), **workload.propagated.annotations}
    return sum(len(str(key).encode()) + len(str(value).encode()) for key, value in annotations.items())


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB"
