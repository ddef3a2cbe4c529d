"""The conformance kit for framework adapters: `argosy conformance framework NAME`, or `findings` in a test.

An adapter is pure, so nearly all that its pods will see can be looked at without running any. Each check is
a sentence that holds for every sample, or else the problems that were found.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct
from msgspec.structs import fields, replace

from argosy.conformance.contract import NonConformance, check_framework
from argosy.frameworks.base import Framework, Injection, Ranking, Sample
from argosy.frameworks.options import option_problems
from argosy.workload import phases
from argosy.workload.model import Elastic, Phase, Resize, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_NO_OPTION_IS_LIKE_THIS = ({"no": "such"}, ["no such"])
_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
_NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Finding(Struct, frozen=True):
    """One check of one sample; without a problem it holds, or there is nothing to hold it to."""

    check: str
    sample: str
    problem: str = ""
    nothing: str = ""
    """Why there is nothing to check."""


class NothingToCheck(Exception):  # noqa: N818 - it reads as what it is
    """The sample does not tell what the check is about."""


class Case(Struct, frozen=True):
    framework: Framework
    sample: Sample

    @property
    def job(self) -> Workload:
        return self.sized({})

    def sized(self, changes: Mapping[str, int]) -> Workload:
        """The sample as a workload with the framework's defaults and rules, some of its roles resized."""
        roles = {
            name: Role(name, changes.get(name, size), _TEMPLATE, elastic=self._elastic(name))
            for name, size in self.sample.roles.items()
        }
        plain = Workload(
            kind="TrainingRun",
            api_version="argosy.dev/v1alpha1",
            namespace="ns",
            name="job",
            uid="job-uid",
            generation=1,
            framework=self.framework.name,
            roles=roles,
            options=self.sample.options,
        )
        complete = self.framework.defaults(plain)
        return replace(complete, rules=self.framework.rules(complete))

    def injections(self, job: Workload) -> dict[tuple[str, int], Injection]:
        """What every pod is given, by its place."""
        return {
            (name, index): self.framework.inject(job, one, index)
            for name, one in job.roles.items()
            for index in range(one.replicas)
        }

    def _elastic(self, name: str) -> Elastic | None:
        bounds = self.sample.elastic.get(name)
        return Elastic(*bounds) if bounds else None


Check = Callable[[Case], Iterator[str]]


def findings(framework: Framework, samples: tuple[Sample, ...]) -> Iterator[Finding]:
    """Every check of every sample; a check that breaks down is a problem of the adapter."""
    for sample in samples:
        for sentence, check in CHECKS.items():
            try:
                problems = list(check(Case(framework, sample)))
            except NothingToCheck as error:
                yield Finding(sentence, sample.title, nothing=str(error))
                continue
            except Exception as error:  # an adapter may fail in any way
                problems = [f"{type(error).__name__}: {error}"]
            yield from (Finding(sentence, sample.title, one) for one in problems or [""])


def _accepted(case: Case) -> Iterator[str]:
    try:
        check_framework(case.framework, case.job)
    except NonConformance as error:
        yield str(error)


def _dense_ranks(case: Case) -> Iterator[str]:
    yield from _rank_problems(case, case.job)


def _rank_problems(case: Case, job: Workload) -> Iterator[str]:
    sample, rankings = case.sample, _rankings(case, job)
    told = {place: ranking.rank for place, ranking in rankings.items() if place[0] in sample.ranked}
    if not sample.rank and all(rank is None for rank in told.values()):
        raise NothingToCheck("pods are told no ranks")
    wanted = [number * sample.slots for number in range(len(told))]
    for (name, index), rank in told.items():
        if rank is None:
            yield f"{name}-{index} is told no rank that is a number"
    ranks = sorted(rank for rank in told.values() if rank is not None)
    if ranks != wanted:
        yield f"ranks are {ranks}, not {wanted}"


def _world_size(case: Case) -> Iterator[str]:
    yield from _world_problems(case, case.job)


def _world_problems(case: Case, job: Workload) -> Iterator[str]:
    sample, rankings = case.sample, _rankings(case, job)
    if not sample.world and all(ranking.world is None for ranking in rankings.values()):
        raise NothingToCheck("pods are told no number of ranks")
    wanted = sum(job.roles[name].replicas for name in sample.ranked) * sample.slots
    for (name, index), ranking in rankings.items():
        if ranking.world is None and sample.world and name in sample.ranked:
            yield f"{name}-{index} is told no number of ranks"
        elif ranking.world not in (None, wanted):
            yield f"{name}-{index} is told {ranking.world} ranks, not {wanted}"


def _rankings(case: Case, job: Workload) -> dict[tuple[str, int], Ranking]:
    read = case.sample.ranking or partial(_by_variables, case.sample)
    return {place: read(injection) for place, injection in case.injections(job).items()}


def _by_variables(sample: Sample, injection: Injection) -> Ranking:
    return Ranking(_number(injection.env.get(sample.rank)), _number(injection.env.get(sample.world)))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _addresses(case: Case) -> Iterator[str]:
    """Every word that looks like a host of this job is one, and can be resolved where it is read."""
    job = case.job
    served = {name for name in job.roles if name in job.rules.services}
    full = {address: name for name, addresses in job.addresses.items() for address in addresses}
    for name in job.roles:
        full[job.service_address(name)] = name
    for (name, index), injection in case.injections(job).items():
        domains = {".".join(domain.split(".")[:1]) for domain in injection.searches}
        short = {
            job.hostname(other, number): other
            for other in job.roles
            for number in range(job.roles[other].replicas)
            if job.service(other) in domains
        }
        for word in _hosts(job, injection):
            owner = full.get(word) or short.get(word)
            if owner is None:
                yield f"{name}-{index}: no pod of the job can be found as {word}"
            elif owner not in served:
                yield f"{name}-{index}: {word} is in no service; rules().services lacks {owner}"


def _hosts(job: Workload, injection: Injection) -> Iterator[str]:
    for text in (*injection.env.values(), *injection.files.values()):
        for word in _WORD.findall(text):
            if word.startswith(f"{job.name}-") or f".{job.namespace}.svc" in word:
                yield word


def _stable(case: Case) -> Iterator[str]:
    """A pod that is started again, perhaps by another operator, finds what its predecessor found."""
    again = Case(type(case.framework)(), case.sample)
    if again.injections(replace(again.job, generation=7)) != case.injections(case.job):
        yield "another instance of the adapter gives pods something else"


def _resized(case: Case) -> Iterator[str]:
    """After a change of size, either all start anew and agree, or those that stay were told nothing stale."""
    for name, size in case.sample.roles.items():
        larger = case.sized({name: size + 1})
        if list(case.framework.check(larger)):
            continue  # a role that there is one of
        with suppress(NothingToCheck):
            yield from _rank_problems(case, larger)
        with suppress(NothingToCheck):
            yield from _world_problems(case, larger)
        if larger.rules.resize is Resize.LIVE and name in case.sample.elastic:
            yield from _stale(case, larger)


def _stale(case: Case, larger: Workload) -> Iterator[str]:
    after = _rankings(case, larger)
    for place, before in _rankings(case, case.job).items():
        if before != after[place]:
            yield f"{place[0]}-{place[1]} would have to be told other ranks while it runs"


def _deduced(case: Case) -> Iterator[str]:
    job = case.job
    rules = job.rules
    if not rules.succeeded_when or not rules.failed_when:
        yield "rules() says not when the job has succeeded, or not when it has failed"
    for names in rules.succeeded_when:
        if _ending(job, dict.fromkeys(names, "Succeeded")) is not Phase.SUCCEEDED:
            yield f"the job does not succeed when {' and '.join(names)} have"
    for names in rules.failed_when:
        if _ending(job, dict.fromkeys(names, "Failed")) is not Phase.FAILED:
            yield f"the job does not fail when {' and '.join(names)} have"
    if _ending(job, {}) is not None:
        yield "the job ends though all its pods run"


def _ending(job: Workload, outcomes: Mapping[str, str]) -> Phase | None:
    """How a job ends some of whose roles have ended so, while the others run."""
    pods = tuple(
        ObservedPod(
            name=f"job-{name}-{index}",
            uid=f"{name}-{index}",
            role=name,
            index=index,
            phase=outcomes.get(name, "Running"),
            created=_NOW,
        )
        for name, one in job.roles.items()
        for index in range(one.replicas)
    )
    roles = {name: RoleRecord(phase=Phase.RUNNING, size=one.replicas) for name, one in job.roles.items()}
    before = Record(phase=Phase.RUNNING, attempt=1, roles=roles)
    record = phases.judged(job, before, Observed(pods=pods), _NOW)
    found = phases.ending(job, record)
    return found.phase if found else None


def _bad_options(case: Case) -> Iterator[str]:
    framework = case.framework
    kinds = {one.encode_name for one in fields(framework.Options)}
    for name in (*kinds, "noSuchOption"):
        for value in _NO_OPTION_IS_LIKE_THIS:
            if not option_problems(framework.name, {name: value}, framework.Options, "spec.options"):
                yield f"option {name}: {value} is taken"
                break


CHECKS: Mapping[str, Check] = {
    "the sample is accepted, and all that is asked for can be given": _accepted,
    "ranks are unique and dense": _dense_ranks,
    "the world size is the number of ranks": _world_size,
    "every address can be resolved": _addresses,
    "pods find the same after a restart": _stable,
    "a change of size is consistent": _resized,
    "success and failure are deduced": _deduced,
    "bad options are refused": _bad_options,
}
