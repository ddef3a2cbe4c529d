"""Describes each framework type of AresJobs: which roles it requires, and which defaults they get.

A profile is data. Unset fields of a job are set from it, and a job that lacks what it requires is invalid.
What is injected into pods is in `injection`.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

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
    elastic_roles: tuple[str, ...] | None = ()
    """The roles that may have `elastic`, as in TrainingRuns those whose number of pods may change while they
    run; None: all."""
    elastic_option: str = ""
    """The field that must be true before any may have it."""
    coordinators: tuple[str, ...] = ()
    """Elastic roles whose first pod all others need (`Rules.coordinators`)."""
    regrouping: tuple[str, ...] = ()
    """Elastic roles whose processes all restart in their pods (`Rules.regrouping_roles`)."""


_USUAL = (ANY, ALL)

PROFILES: Final[Mapping[str, Profile]] = {
    "custom": Profile(elastic_roles=None),
    "demo": Profile(policies={}, services=(), succeeded=(), failed=(), creates_no_pods=True),
    "standalone": Profile(
        container="standalone",
        required=(WORKER,),
        no_service=(WORKER,),
        succeeded=(WORKER,),
        failed=(WORKER,),
        elastic_roles=None,
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
        elastic_roles=(WORKER,),
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
        elastic_option="framework.tensorflow.enableDynamicWorker",
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
        elastic_roles=(WORKER,),
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
        elastic_option="framework.bagua.enableElastic",
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
    elastic_roles=(WORKER,),
    regrouping=(WORKER,),
)
_ELASTIC_PYTORCH: Final = Profile(
    container="pytorch",
    container_required=True,
    required=(WORKER,),
    policies={WORKER: _USUAL},
    succeeded=(WORKER,),
    failed=(WORKER,),
    elastic_roles=(WORKER,),
    coordinators=(WORKER,),
    regrouping=(WORKER,),
)


def profile_of(spec: AresJobSpec) -> Profile | None:
    """Return the profile of a job's framework type; None if the type is unknown."""
    name = spec.framework_type or ""
    if name == "bagua" and is_elastic_bagua(spec):
        return _ELASTIC_BAGUA
    if name == "pytorch" and has_elastic_workers(spec):
        return _ELASTIC_PYTORCH
    if name == "tensorflow":
        return _tensorflow(spec)
    return PROFILES.get(name)


def _tensorflow(spec: AresJobSpec) -> Profile:
    profile = PROFILES["tensorflow"]
    if CHIEF in roles_of(spec):
        profile = replace(profile, never_fails_job=(WORKER,))
    if has_dynamic_workers(spec):
        profile = replace(profile, elastic_roles=(WORKER,))
    return profile


def is_elastic_bagua(spec: AresJobSpec) -> bool:
    """Return True if the job uses Bagua's own elastic training, with etcd."""
    bagua = spec.framework.bagua if spec.framework else None
    return bool(bagua and bagua.enable_elastic)


def has_dynamic_workers(spec: AresJobSpec) -> bool:
    """Return True if workers of TensorFlow may join and leave."""
    tensorflow = spec.framework.tensorflow if spec.framework else None
    return bool(tensorflow and tensorflow.enable_dynamic_worker)


def has_elastic_workers(spec: AresJobSpec) -> bool:
    worker = roles_of(spec).get(WORKER)
    return worker is not None and worker.elastic is not None


def roles_of(spec: AresJobSpec) -> dict[str, RoleSpec]:
    """Return the roles that are not null."""
    return {name: role for name, role in (spec.role_specs or {}).items() if role is not None}


def services_of(spec: AresJobSpec, profile: Profile) -> tuple[str, ...]:
    """Return the roles that have a service."""
    names = tuple(sorted(roles_of(spec)))
    if profile.services is not None:
        return tuple(name for name in names if name in profile.services)
    return tuple(name for name in names if name not in profile.no_service)
