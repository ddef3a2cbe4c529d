"""DeepSpeed: every pod starts its own processes, or a launcher starts them in all pods.

With only role `worker`, each pod runs `deepspeed --no_ssh` or plain Python, and the variables are PyTorch's.
With a `launcher`, it runs `deepspeed --launcher openmpi` (or `mpich`, `impi`) and pods are set up as for MPI.
In both cases the host file has the path at which `deepspeed` expects it.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.frameworks.common import WORKER, PortNumber, options_of, require_role, slots
from argosy.frameworks.mpi import LAUNCHER, Implementation, Mpi
from argosy.frameworks.pytorch import PyTorch
from argosy.workload.model import Problem, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

HOST_FILE = "/job/hostfile"
"""DeepSpeed's default."""
_MPI, _TORCH = Mpi(), PyTorch()


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    procs_per_node: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Processes in a pod; if unset, the role's slots, its GPUs, else 1."""
    port: PortNumber = 29500
    """Port on which rank 0 listens."""
    implementation: Implementation = Implementation.OPEN_MPI
    """The MPI implementation of the launcher's mpirun."""


class DeepSpeed:
    name: ClassVar[str] = "deepspeed"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return _MPI.defaults(workload) if LAUNCHER in workload.roles else _TORCH.defaults(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from require_role(workload, WORKER)
        if LAUNCHER in workload.roles:
            yield from _MPI.check(_as_mpi(workload))

    def rules(self, workload: Workload) -> Rules:
        if LAUNCHER in workload.roles:
            return _MPI.rules(_as_mpi(workload))
        return _TORCH.rules(_as_torch(workload))

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        if LAUNCHER in workload.roles:
            injection = _MPI.inject(_as_mpi(workload), role, index)
            return _with_host_file(injection, workload) if role.name == LAUNCHER else injection
        static = _as_torch(workload)
        injection = _TORCH.inject(static, static.roles[role.name], index)
        return _with_host_file(injection, workload) if role.name == WORKER else injection

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        """Return the size of the host file, in pods that start processes; with a launcher, MPI's is added."""
        launched = LAUNCHER in workload.roles
        if role.name != (LAUNCHER if launched else WORKER):
            return ListBytes()
        own = workload.address_bytes(WORKER, extra=len(_slots(workload)) + len("\n"))
        also = _MPI.list_bytes(_as_mpi(workload), role).files if launched else 0
        return ListBytes(files=own + also)


def _with_host_file(injection: Injection, workload: Workload) -> Injection:
    """Add a host file with full names, which resolve without search domains."""
    slots = _slots(workload)
    lines = [f"{address}{slots}\n" for address in workload.addresses[WORKER]]
    return replace(injection, files={**injection.files, HOST_FILE: "".join(lines)})


def _slots(workload: Workload) -> str:
    processes = options_of(workload, Options).procs_per_node or slots(workload.roles[WORKER])
    return f" slots={processes}"


def _as_mpi(workload: Workload) -> Workload:
    options = options_of(workload, Options)
    mpi_options: dict[str, object] = {"implementation": options.implementation.value}
    if options.procs_per_node:
        mpi_options["slotsPerWorker"] = options.procs_per_node
    return replace(workload, options=mpi_options)


def _as_torch(workload: Workload) -> Workload:
    """Return the workload with a static process group: elastic workers are restarted with a new size."""
    kept = {name: value for name, value in workload.options.items() if name != "implementation"}
    roles = {name: replace(role, elastic=None) for name, role in workload.roles.items()}
    return replace(workload, options=kept, roles=roles)
