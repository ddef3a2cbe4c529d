"""Horovod: a launcher starts ranks in the workers, by `mpirun` or by `horovodrun`.

Pods are set up as for MPI, whose host file Horovod reads too, so both find hosts and remote exec.
`horovodrun` over gloo calls `ssh`: with `sshKeys` the real one; else the one in `/opt/argosy/bin` is our
remote exec, and is found if the command puts that folder first on its PATH. A rank that is lost ends all, so
the job starts anew as a whole.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.frameworks.common import options_of
from argosy.frameworks.mpi import LAUNCHER, WORKER, Implementation, Mpi
from argosy.workload.model import Problem, Role, Rules, Workload
from argosy.workload.pod_size import ListBytes

_MPI = Mpi()


class Controller(StrEnum):
    GLOO = "gloo"
    MPI = "mpi"


class Options(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    controller: Controller | None = None
    """What ranks talk over; if unset Horovod finds out by how they were started."""
    implementation: Implementation = Implementation.OPEN_MPI
    """Whose mpirun."""
    slots_per_worker: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Ranks in a pod; if unset, the role's slots, its GPUs, else 1."""
    launcher_as_host: bool = False
    """The launcher takes ranks too, the first ones."""
    ssh_keys: bool = False
    """Ranks are started by ssh, with keys that are made for the job, instead of by remote exec."""


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
    """The same with the options that MPI has too."""
    options = {name: value for name, value in workload.options.items() if name != "controller"}
    return replace(workload, options=options)
