"""Tests for the registry of frameworks; every built-in adapter passes the conformance kit."""

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import ClassVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.conformance.contract import NonConformance, check_framework
from argosy.frameworks.custom import Custom
from argosy.frameworks.registry import BUILTIN_FRAMEWORKS, GROUP, installed
from argosy.workload.model import Elastic, Problem, Role, Rules, Workload
from tests.support.workloads import role, workload

WORKER, LAUNCHER = role("worker", 3, policy=None), role("launcher", 1, policy=None)

CASES = {
    "pytorch, static": ("pytorch", workload(WORKER)),
    "pytorch, with a master": ("pytorch", workload(role("master", 1, policy=None), WORKER)),
    "pytorch, elastic": ("pytorch", workload(replace(WORKER, elastic=Elastic(1, 4)))),
    "pytorch, with another role": ("pytorch", workload(WORKER, role("board", 1, policy=None))),
    "mpi": ("mpi", workload(LAUNCHER, WORKER)),
    "mpi, launcher alone": ("mpi", replace(workload(LAUNCHER), options={"launcherAsHost": True})),
    "mpi, with another role": ("mpi", workload(LAUNCHER, WORKER, role("board", 1, policy=None))),
    "custom": ("custom", workload(role("ps", 2, policy=None), WORKER)),
    "standalone": ("standalone", workload(WORKER, role("board", 1, policy=None))),
    "jax": ("jax", workload(WORKER, role("board", 1, policy=None))),
    "dask": ("dask", workload(role("scheduler", 1, policy=None), WORKER, LAUNCHER)),
    "dask, with a leader": (
        "dask",
        workload(role("scheduler", 1, policy=None), role("leadworker", 1, policy=None), WORKER, LAUNCHER),
    ),
    "tensorflow": ("tensorflow", workload(role("chief", 1, policy=None), WORKER)),
    "tensorflow, with servers": (
        "tensorflow",
        workload(role("ps", 2, policy=None), role("chief", 1, policy=None), WORKER),
    ),
    "tensorflow, with others": (
        "tensorflow",
        workload(WORKER, role("evaluator", 1, policy=None), role("board", 1, policy=None)),
    ),
    "tensorflow, dynamic": ("tensorflow", replace(workload(WORKER), options={"dynamicWorkers": True})),
    "xgboost": ("xgboost", workload(WORKER, role("board", 1, policy=None))),
    "horovod": ("horovod", replace(workload(LAUNCHER, WORKER), options={"controller": "gloo"})),
    "bagua": ("bagua", workload(role("master", 1, policy=None), WORKER)),
    "bagua, elastic": (
        "bagua",
        workload(replace(WORKER, elastic=Elastic(1, 4)), role("etcd", 1, policy=None)),
    ),
    "deepspeed": ("deepspeed", workload(WORKER, role("board", 1, policy=None))),
    "deepspeed, with a launcher": ("deepspeed", workload(LAUNCHER, WORKER)),
    "custom, large": ("custom", workload(role("worker", 600, policy=None))),
}


@pytest.mark.parametrize(("name", "job"), CASES.values(), ids=CASES.keys())
def test_conformance(name: str, job: Workload) -> None:
    check_framework(installed()[name], replace(job, framework=name))


def test_the_table_covers_every_framework() -> None:
    assert {name for name, _ in CASES.values()} == {own.name for own in BUILTIN_FRAMEWORKS}


def test_entry_points_list_the_built_in_frameworks() -> None:
    points = {point.name: point.load() for point in entry_points(group=GROUP)}
    assert {name: points.get(name) for name in (own.name for own in BUILTIN_FRAMEWORKS)} == {
        own.name: own for own in BUILTIN_FRAMEWORKS
    }


class Loose(Struct):
    pass


class Careless(Custom):
    """An adapter with one fault."""

    name: ClassVar[str] = "careless"


class IgnoresTypingErrors(Careless):
    Options: ClassVar[type[Struct]] = Loose


class SpeaksOfOthers(Careless):
    def rules(self, workload: Workload) -> Rules:
        return Rules(succeeded_when=(("chief",),))


class FindsProblems(Careless):
    def check(self, workload: Workload) -> Iterator[Problem]:
        yield Problem("spec", "wrong")


class LeavesPoliciesOpen(Careless):
    def defaults(self, workload: Workload) -> Workload:
        return workload


BROKEN: dict[str, tuple[Careless, str]] = {
    "unknown options accepted: reported": (IgnoresTypingErrors(), "forbid_unknown_fields"),
    "rules about missing roles: reported": (SpeaksOfOthers(), r"\['chief'\]"),
    "valid workload rejected: reported": (FindsProblems(), "spec: wrong"),
    "role without a policy: reported": (LeavesPoliciesOpen(), "must set a policy"),
}


@pytest.mark.parametrize(("framework", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_faults_are_reported(framework: Careless, message: str) -> None:
    role: Role = WORKER
    with pytest.raises(NonConformance, match=message):
        check_framework(framework, workload(role))
