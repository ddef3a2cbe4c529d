"""Horovod: a launcher starts ranks in the workers, with `mpirun` or `horovodrun`.

Pods are set up as for MPI: Horovod reads the same host file, and both use the same remote exec. `horovodrun`
with gloo calls `ssh`: the real one with `sshKeys`, otherwise `/opt/argosy/bin/ssh`, which is Argosy's remote
exec and is used if the command puts that folder first in PATH. A lost rank ends all others, so the whole job
restarts.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.frameworks.common import WORKER, options_of
from argosy.frameworks.mpi import LAUNCHER, Implementation, Mpi
from argosy.workload.model import Problem, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

_MPI = Mpi()


class Controller(StrEnum):
    GLOO = "gloo"
    MPI = "mpi"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    controller: Controller | None = None
    """How ranks communicate; if unset, Horovod detects it from how they were started."""
    implementation: Implementation = Implementation.OPEN_MPI
    """The MPI implementation of mpirun."""
    slots_per_worker: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Ranks in a pod; if unset, the role's slots, its GPUs, else 1."""
    launcher_as_host: bool = False
    """Whether the launcher runs ranks too, the first ones."""
    ssh_keys: bool = False
    """Whether ranks are started by ssh, with keys generated for the job, instead of by remote exec."""


class Horovod:
    name: ClassVar[str] = "horovod"
    Options: ClassVar[type[Struct]] = Options

    def defaults(self, workload: Workload) -> Workload:
        return _MPI.defaults(workload)

    def check(self, workload: Workload) -> Iterator[Problem]:
        yield from _MPI.check(_as_mpi(workload))

    def rules(self, workload: Workload) -> Rules:
        return _MPI.rules(_as_mpi(workload))

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        injection = _MPI.inject(_as_mpi(workload), role, index)
        controller = options_of(workload, Options).controller
        if controller is None or role.name not in (LAUNCHER, WORKER):
            return injection
        chosen = {"HOROVOD_CONTROLLER": controller.value, "HOROVOD_CPU_OPERATIONS": controller.value}
        return replace(injection, env={**injection.env, **chosen})

    def list_bytes(self, workload: Workload, role: Role) -> ListBytes:
        return _MPI.list_bytes(_as_mpi(workload), role)


def _as_mpi(workload: Workload) -> Workload:
    """Return the workload with only those options that MPI has too."""
    options = {name: value for name, value in workload.options.items() if name != "controller"}
    return replace(workload, options=options)
