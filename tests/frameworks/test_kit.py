"""Tests that every built-in adapter passes the conformance kit, and that the kit finds each kind of fault."""

from collections.abc import Iterator
from typing import ClassVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.conformance.kit import CHECKS, findings
from argosy.conformance.samples import BUILT_IN, samples_of
from argosy.frameworks.base import Injection, Sample
from argosy.frameworks.jax import Jax
from argosy.frameworks.mpi import Mpi
from argosy.frameworks.registry import BUILTIN_FRAMEWORKS, installed
from argosy.workload.model import Elastic, Problem, ResizeMode, Role, Rules, Workload

SAMPLE = BUILT_IN["jax"][0]
ELASTIC = replace(SAMPLE, elastic={"worker": (1, 8)})


def test_every_built_in_framework_has_samples() -> None:
    assert {own.name for own in BUILTIN_FRAMEWORKS} == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_frameworks_pass_the_kit(name: str) -> None:
    framework = installed()[name]
    reported = list(findings(framework, samples_of(framework)))
    assert len(reported) == len(CHECKS) * len(BUILT_IN[name])
    assert [finding for finding in reported if finding.problem] == []


class Likeness(Jax):
    """Like JAX's adapter, except for one fault."""

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


class TellsNobody(Likeness):
    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"JAX_PROCESS_ID": "", "JAX_NUM_PROCESSES": "many"}


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
    instances = 0

    def __init__(self) -> None:
        Remembers.instances += 1
        self.number = Remembers.instances

    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"SALT": str(self.number)}


class TakesItLive(Likeness):
    """Injects the number of workers although they are elastic."""

    def rules(self, workload: Workload) -> Rules:
        return replace(super().rules(workload), resize=ResizeMode.LIVE)


class KnowsDeclaredReplicasOnly(Likeness):
    def changed(self, workload: Workload, role: Role, index: int) -> dict[str, str]:
        return {"PORT": "9000" if index < role.replicas else ""}


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
    "ranks start at 1: reported": (
        CountsFromOne,
        SAMPLE,
        "ranks are unique and dense",
        "are [1, 2, 3], not [0, 1, 2]",
    ),
    "duplicate rank: reported": (
        GivesTwoTheSame,
        SAMPLE,
        "ranks are unique and dense",
        "are [0, 0, 1], not [0, 1, 2]",
    ),
    "no rank: reported": (TellsNobody, SAMPLE, "ranks are unique and dense", "worker-0 gets no rank"),
    "no world size: reported": (
        TellsNobody,
        SAMPLE,
        "the world size is the number of ranks",
        "worker-2 gets no world size",
    ),
    "world size of one: reported": (
        WrongWorld,
        SAMPLE,
        "the world size is the number of ranks",
        "worker-0 gets world size 1, not 3",
    ),
    "address of a pod that does not exist: reported": (
        NamesNobody,
        SAMPLE,
        "every address can be resolved",
        "job-worker-3.job-worker.ns.svc.cluster.local is not the address of a pod of the job",
    ),
    "address without a service: reported": (
        ForgetsTheService,
        SAMPLE,
        "every address can be resolved",
        "services must contain worker",
    ),
    "short host names without a DNS search domain: reported": (
        ShortNames,
        SAMPLE,
        "every address can be resolved",
        "job-worker-0 is not the address of a pod of the job",
    ),
    "adapter with state: reported": (
        Remembers,
        SAMPLE,
        "pods get the same values after a restart",
        "another instance",
    ),
    "world size with elastic workers: reported": (
        TakesItLive,
        ELASTIC,
        "a resize leaves no pod with outdated values",
        "worker-0 would need another rank or world size while it runs",
    ),
    "variable that only indexes below the number of replicas have: reported": (
        KnowsDeclaredReplicasOnly,
        ELASTIC,
        "elastic roles have pods of any index below their maximum",
        "worker-7 has no PORT",
    ),
    "no rule for success: reported": (
        NeverSucceeds,
        SAMPLE,
        "success and failure of the job follow from its roles",
        "must set succeeded_when",
    ),
    "unknown options accepted: reported": (
        TakesAnyOption,
        SAMPLE,
        "invalid options are rejected",
        "option extra: ",
    ),
    "sample that the adapter rejects: reported": (
        RefusesItsSample,
        SAMPLE,
        "the sample is valid",
        "spec: no",
    ),
    "adapter that raises: reported": (Crashes, SAMPLE, "ranks are unique and dense", "KeyError: 'port'"),
}


@pytest.mark.parametrize(("kind", "sample", "check", "want"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_of_adapters_are_reported(kind: type[Likeness], sample: Sample, check: str, want: str) -> None:
    problems = [finding for finding in findings(kind(), (sample,)) if finding.problem]
    assert check in {finding.check for finding in problems}
    assert any(want in finding.problem for finding in problems if finding.check == check), problems


NOTHING = {
    "pytorch: elastic": {"pods get no rank", "pods get no world size"},
    "mpi: ompi": {"pods get no rank"},
    "tensorflow: parameter servers": set(),
    "jax: workers": set(),
}


@pytest.mark.parametrize("case", NOTHING)
def test_checks_that_do_not_apply_are_reported_as_skipped(case: str) -> None:
    name, title = case.split(": ")
    sample = next(finding for finding in BUILT_IN[name] if finding.title == title)
    assert {
        finding.skipped for finding in findings(installed()[name], (sample,)) if finding.skipped
    } == NOTHING[case]


class DoublesAHost(Mpi):
    """Gives two pods the same name."""

    def inject(self, workload: Workload, role: Role, index: int) -> Injection:
        usual = super().inject(workload, role, index)
        files = {path: text.replace("worker-1", "worker-0") for path, text in usual.files.items()}
        return replace(usual, files=files)


def test_a_host_listed_twice_is_reported() -> None:
    problems = [
        finding.problem for finding in findings(DoublesAHost(), BUILT_IN["mpi"][:1]) if finding.problem
    ]
    assert "launcher-0 gets world size 1, not 2" in problems


def test_every_check_is_covered_by_a_fault() -> None:
    assert {check for _, _, check, _ in FAULTS.values()} == set(CHECKS)


def test_the_elastic_sample_is_elastic() -> None:
    assert ELASTIC.elastic["worker"] == (Elastic(1, 8).min, Elastic(1, 8).max)
