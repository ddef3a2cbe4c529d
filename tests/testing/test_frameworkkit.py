"""Every built-in adapter passes the kit, and the kit finds each fault that it is there to find."""

from collections.abc import Iterator
from typing import ClassVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Sample
from argosy.frameworks.jax import Jax
from argosy.frameworks.registry import OURS, installed
from argosy.testing.frameworkkit import CHECKS, findings
from argosy.testing.samples import BUILT_IN, samples_of
from argosy.workload.model import Elastic, Problem, Resize, Role, Rules, Workload

SAMPLE = BUILT_IN["jax"][0]
ELASTIC = replace(SAMPLE, elastic={"worker": (1, 8)})


def test_every_built_in_one_has_samples() -> None:
    assert {own.name for own in OURS} == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_one_passes(name: str) -> None:
    framework = installed()[name]
    found = list(findings(framework, samples_of(framework)))
    assert len(found) == len(CHECKS) * len(BUILT_IN[name])
    assert [finding for finding in found if finding.problem] == []


class Likeness(Jax):
    """As JAX's, but for one fault."""

    name: ClassVar[str] = "likeness"

    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {}

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        usual = super().inject(workload, role, index)
        return replace(usual, env={**usual.env, **self.changed(workload, role, index)})


class CountsFromOne(Likeness):
    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"JAX_PROCESS_ID": str(index + 1)}


class GivesTwoTheSame(Likeness):
    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"JAX_PROCESS_ID": str(index // 2)}


class WrongWorld(Likeness):
    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"JAX_NUM_PROCESSES": "1"}


class NamesNobody(Likeness):
    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"NEXT": f"http://{workload.address('worker', role.replicas)}:1/"}


class ForgetsTheService(Likeness):
    def rules(self, workload: Workload) -> Rules:
        return replace(super().rules(workload), services=())


class ShortNames(Likeness):
    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"NEXT": workload.hostname("worker", 0)}


class Remembers(Likeness):
    made = 0

    def __init__(self) -> None:
        Remembers.made += 1
        self.number = Remembers.made

    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"SALT": str(self.number)}


class TakesItLive(Likeness):
    """Tells the number of all, which does not stay true."""

    def rules(self, workload: Workload) -> Rules:
        return replace(super().rules(workload), resize=Resize.LIVE)


class NeverSucceeds(Likeness):
    def rules(self, workload: Workload) -> Rules:
        return replace(super().rules(workload), succeeded_when=())


class Anything(Struct, forbid_unknown_fields=True):
    extra: object = None


class TakesAnyOption(Likeness):
    Options: ClassVar[type[Struct]] = Anything

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        return Injection(env={"JAX_PROCESS_ID": str(index), "JAX_NUM_PROCESSES": str(role.replicas)})


class RefusesItsSample(Likeness):
    def check(self, workload: Workload) -> Iterator[Problem]:
        yield Problem("spec", "no")


class Crashes(Likeness):
    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        raise KeyError("port")


FAULTS: dict[str, tuple[type[Likeness], Sample, str, str]] = {
    "ranks from 1": (CountsFromOne, SAMPLE, "ranks are unique and dense", "is [1, 2, 3], not [0, 1, 2]"),
    "a rank twice": (GivesTwoTheSame, SAMPLE, "ranks are unique and dense", "is not a number of its own"),
    "a world of one": (
        WrongWorld,
        SAMPLE,
        "the world size is the number of ranks",
        "worker-0: JAX_NUM_PROCESSES is 1, not 3",
    ),
    "an address of nobody": (
        NamesNobody,
        SAMPLE,
        "every address can be resolved",
        "no pod of the job can be found as job-worker-3.job-worker.ns.svc.cluster.local",
    ),
    "no service": (ForgetsTheService, SAMPLE, "every address can be resolved", "services lacks worker"),
    "short names without a search": (
        ShortNames,
        SAMPLE,
        "every address can be resolved",
        "no pod of the job can be found as job-worker-0",
    ),
    "a memory": (Remembers, SAMPLE, "pods find the same after a restart", "another instance"),
    "a stale world": (
        TakesItLive,
        ELASTIC,
        "a change of size is consistent",
        "worker-0: JAX_NUM_PROCESSES would change while the pod runs",
    ),
    "no success": (NeverSucceeds, SAMPLE, "success and failure are deduced", "says not when"),
    "an option for anything": (TakesAnyOption, SAMPLE, "bad options are refused", "option extra: "),
    "a sample that is refused": (
        RefusesItsSample,
        SAMPLE,
        "the sample is accepted, and all that is asked for can be given",
        "spec: no",
    ),
    "a crash": (Crashes, SAMPLE, "ranks are unique and dense", "KeyError: 'port'"),
}


@pytest.mark.parametrize(("kind", "sample", "check", "want"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found(kind: type[Likeness], sample: Sample, check: str, want: str) -> None:
    found = [one for one in findings(kind(), (sample,)) if one.problem]
    assert check in {one.check for one in found}
    assert any(want in one.problem for one in found if one.check == check), found


def test_every_check_finds_something() -> None:
    assert {check for _, _, check, _ in FAULTS.values()} == set(CHECKS)


def test_the_elastic_sample_is_elastic() -> None:
    assert ELASTIC.elastic["worker"] == (Elastic(1, 8).min, Elastic(1, 8).max)
