"""What holds of VMs whatever happens: none is unknown, and none is left."""

from argosy.capacity.machine_record import MachineState
from tests.support.machine_simulator import World


def check_at_rest(world: World) -> None:
    """Check that what exists is what is recorded."""
    recorded = sorted(
        obj.status.instance_name
        for name, obj in world.objects.items()
        if world.state(name) not in (MachineState.WANTED, MachineState.FAILED, MachineState.DELETED)
    )
    assert world.machines() == recorded
    assert world.gate.violations == []


def check_nothing_left(world: World) -> None:
    assert world.machines() == []
    assert (world.objects, world.nodes, world.tokens) == ({}, {}, {})
    assert world.gate.violations == []
    ever = {(zone, name) for _, zone, name in world.cloud.ever}
    assert ever <= world.names, "every VM there has been was recorded"
