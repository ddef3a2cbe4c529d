"""Describes each framework type of AresJobs: which roles it requires, and which defaults they get.

A profile is data. Unset fields of a job are set from it, and a job that lacks what it requires is invalid.
What is injected into pods is in `injection`.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from argosy.kinds.aresjob import AresJobSpec, RoleSpec
from argosy.workload.model import Quantifier

CHIEF, MASTER, PS, WORKER, EVALUATOR = "chief", "master", "ps", "worker", "evaluator"
LAUNCHER, SCHEDULER, LEADWORKER, ETCD = "launcher", "scheduler", "leadworker", "etcd"
HOST_FILE: Final = "/etc/mpi/hostfile"
ANY, ALL = Quantifier.ANY.value, Quantifier.ALL.value


class Profile(Struct, frozen=True):
    """One framework type."""

    container: str = ""
    """The default container; if empty, the first."""
    container_required: bool = False
    """True if a role with a service must have that container."""
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    """At least one of these roles must be there."""
    single: tuple[str, ...] = ()
    """Roles that have exactly one pod, if they exist."""
    policies: Mapping[str, tuple[str, str]] | None = None
    """Outcome policies (failed, succeeded) of roles; None: derived from the restart policy of each role."""
    node_down: tuple[str, ...] = ()
    """Roles for which a pod on a node that is down has failed."""
    restarts: Mapping[str, str] = field(default_factory=dict)
    """Restart policies of roles that have none."""
    depends_on: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """A role, and the roles of which it waits for the first that exists."""
    no_service: tuple[str, ...] = ()
    """Roles without a service."""
    services: tuple[str, ...] | None = None
    """The only roles with a service; None: all others."""
    succeeded: tuple[str, ...] | None = None
    """The roles that must all succeed for the job to succeed, as far as they exist; None: all."""
    failed: tuple[str, ...] | None = None
    """The roles each of which makes the job fail; None: each."""
    never_fails_job: tuple[str, ...] = ()
    """Roles that do not make the job fail."""
    creates_no_pods: bool = False
    """True if a job creates nothing."""
    ssh_roles: tuple[str, ...] = ()
    """Roles that share keys for ssh, if these are asked for."""


_USUAL = (ANY, ALL)

PROFILES: Final[Mapping[str, Profile]] = {
    "custom": Profile(),
    "demo": Profile(policies={}, services=(), succeeded=(), failed=(), creates_no_pods=True),
    "standalone": Profile(
        container="standalone",
        required=(WORKER,),
        no_service=(WORKER,),
        succeeded=(WORKER,),
        failed=(WORKER,),
    ),
    "pytorch": Profile(
        container="pytorch",
        container_required=True,
        required=(MASTER,),
        single=(MASTER,),
        policies={MASTER: _USUAL, WORKER: _USUAL},
        depends_on=((WORKER, (MASTER,)),),
        no_service=(WORKER,),
        succeeded=(MASTER, WORKER),
        failed=(MASTER, WORKER),
    ),
    "mpi": Profile(
        container="mpi",
        required=(LAUNCHER,),
        policies={LAUNCHER: _USUAL, WORKER: (ANY, "")},
        node_down=(LAUNCHER, WORKER),
        depends_on=((LAUNCHER, (WORKER,)),),
        no_service=(LAUNCHER, WORKER),
        succeeded=(LAUNCHER,),
        failed=(LAUNCHER, WORKER),
        ssh_roles=(LAUNCHER, WORKER),
    ),
    "tensorflow": Profile(
        container="tensorflow",
        container_required=True,
        one_of=(MASTER, CHIEF, WORKER),
        single=(CHIEF, MASTER),
        succeeded=(MASTER, CHIEF, WORKER),
    ),
    "dask": Profile(
        container="dask",
        container_required=True,
        required=(LAUNCHER, SCHEDULER),
        single=(LAUNCHER, SCHEDULER, LEADWORKER),
        policies=dict.fromkeys((SCHEDULER, LEADWORKER, WORKER, LAUNCHER), _USUAL),
        restarts={SCHEDULER: "OnFailure"},
        depends_on=(
            (LEADWORKER, (SCHEDULER,)),
            (WORKER, (LEADWORKER,)),
            (LAUNCHER, (WORKER, LEADWORKER, SCHEDULER)),
        ),
        services=(SCHEDULER, LEADWORKER),
        succeeded=(LAUNCHER,),
        failed=(LAUNCHER, SCHEDULER, LEADWORKER, WORKER),
    ),
    "bagua": Profile(
        container="bagua",
        container_required=True,
        required=(MASTER,),
        single=(MASTER,),
        policies={MASTER: _USUAL, WORKER: _USUAL},
        depends_on=((WORKER, (MASTER,)),),
        succeeded=(MASTER, WORKER),
        failed=(MASTER, WORKER),
    ),
}
_ELASTIC_BAGUA: Final = Profile(
    container="bagua",
    container_required=True,
    required=(WORKER, ETCD),
    single=(ETCD,),
    policies={WORKER: _USUAL, ETCD: _USUAL},
    depends_on=((WORKER, (ETCD,)),),
    succeeded=(WORKER,),
    failed=(WORKER, ETCD),
)
_WITH_CHIEF: Final = Profile(
    container="tensorflow",
    container_required=True,
    one_of=(MASTER, CHIEF, WORKER),
    single=(CHIEF, MASTER),
    succeeded=(MASTER, CHIEF, WORKER),
    never_fails_job=(WORKER,),
)


def profile_of(spec: AresJobSpec) -> Profile | None:
    """Return the profile of a job's framework type; None if the type is unknown."""
    name = spec.framework_type or ""
    if name == "bagua" and is_elastic(spec):
        return _ELASTIC_BAGUA
    if name == "tensorflow" and CHIEF in roles_of(spec):
        return _WITH_CHIEF
    return PROFILES.get(name)


def is_elastic(spec: AresJobSpec) -> bool:
    bagua = spec.framework.bagua if spec.framework else None
    return bool(bagua and bagua.enable_elastic)


def roles_of(spec: AresJobSpec) -> dict[str, RoleSpec]:
    """Return the roles that are not null."""
    return {name: role for name, role in (spec.role_specs or {}).items() if role is not None}


def services_of(spec: AresJobSpec, profile: Profile) -> tuple[str, ...]:
    """Return the roles that have a service."""
    names = tuple(sorted(roles_of(spec)))
    if profile.services is not None:
        return tuple(name for name in names if name in profile.services)
    return tuple(name for name in names if name not in profile.no_service)
