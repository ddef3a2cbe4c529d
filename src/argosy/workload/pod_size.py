"""Whether the pods of a job can be stored at all, told before any of them is rendered.

Pods of many frameworks are told the addresses of all others, so a job of a few kilobytes can ask for pods of
megabytes. etcd refuses requests of more than 1.5 MiB, of which the API server and the node need some for
managed fields and status; and files travel as annotations, for which Kubernetes has 256 KiB a pod. Sizes are
calculated from lengths and numbers of replicas: the lists themselves are not built, so refusing the largest
job takes no longer than accepting a small one.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.model import Problem, Role, Workload

MAX_POD_BYTES: Final = 1280 * 1024
MAX_ANNOTATION_BYTES: Final = 256 * 1024
"""Keys and values of all annotations of a pod."""
POD_OVERHEAD_BYTES: Final = 4096
"""What every pod is given: labels, owner, helper container, volumes."""
CONTAINER_OVERHEAD_BYTES: Final = 512
"""What every container is given: variables that say which pod it is in, and mounts."""


class ListBytes(Struct, frozen=True):
    """Bytes of JSON that a framework adds to a pod and that grow with the job."""

    per_container: int = 0
    """In each container that is given the framework's variables."""
    ports: int = 0
    """In one container of the pod."""
    files: int = 0
    """As annotations of the pod; exactly, since that is what they are measured by."""
    env_container: str = ""
    """The one container that is given the variables; all of them if empty."""


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
    """The role whose pods are too large to be stored; the worst of them, if there are several."""
    roles = workload.roles.values()
    largest = max(roles, key=lambda role: role.pod_bytes, default=None)
    if largest is not None and largest.pod_bytes > MAX_POD_BYTES:
        yield _too_large(workload, largest, "a pod", largest.pod_bytes, MAX_POD_BYTES)
        return
    noted = max(roles, key=lambda role: role.annotation_bytes, default=None)
    if noted is not None and noted.annotation_bytes > MAX_ANNOTATION_BYTES:
        what = "the files and annotations of a pod"
        yield _too_large(workload, noted, what, noted.annotation_bytes, MAX_ANNOTATION_BYTES)


def _too_large(workload: Workload, role: Role, what: str, size: int, limit: int) -> Problem:
    told = f"with what it is told of {workload.total_pods} pods in all"
    said = f"{what} of this role would take {_kib(size)}, {told}; must be at most {_kib(limit)}"
    return Problem(f"{workload.semantics.roles_path}.{role.name}", said)


def _pod_bytes(role: Role, lists: ListBytes) -> int:
    """The size of a pod but for its annotations."""
    spec = role.template.get("spec")
    written = spec if isinstance(spec, dict) else {}
    names = [
        container.get("name") if isinstance(container, dict) else None
        for part in ("initContainers", "containers")
        for container in written.get(part) or ()
    ]
    given = sum(1 for name in names if not lists.env_container or name == lists.env_container)
    return (
        POD_OVERHEAD_BYTES
        + CONTAINER_OVERHEAD_BYTES * len(names)
        + len(msgspec.json.encode(written))
        + lists.ports
        + lists.per_container * given
    )


def _annotation_bytes(workload: Workload, role: Role) -> int:
    metadata = role.template.get("metadata")
    written = metadata.get("annotations") if isinstance(metadata, dict) else None
    annotations = {**(written if isinstance(written, dict) else {}), **workload.propagated.annotations}
    return sum(len(str(key).encode()) + len(str(value).encode()) for key, value in annotations.items())


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB"
