"""Assigns the machine's GPUs to pods."""

from argosy.kinds.quantity import parse_quantity
from argosy.local.node.node_status import GPU, Machine
from argosy.local.node.pod_types import Pod
from argosy.local.node.volumes import VolumeError


class GpuPool:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._held: dict[str, tuple[str, list[int]]] = {}

    def assign(self, pod: Pod) -> dict[str, list[int]]:
        """Assign real GPUs to the containers that request them; simulated ones need none."""
        node, uid = pod.spec.node_name, pod.metadata.uid
        if not self._machine.gpus.get(node):
            return {}
        taken = {i for other, (_, held) in self._held.items() if other != uid for i in held}
        free = [index for index in self._machine.gpus[node] if index not in taken]
        assigned: dict[str, list[int]] = {}
        for container in pod.spec.containers:
            count = int(parse_quantity(container.resources.limits.get(GPU, 0)))
            if count > len(free):
                raise VolumeError(f"{count} GPUs asked for, {len(free)} free on {node}")
            assigned[container.name], free = free[:count], free[count:]
        self._held[uid] = (node, [index for held in assigned.values() for index in held])
        return assigned

    def release(self, uid: str) -> None:
        self._held.pop(uid, None)
