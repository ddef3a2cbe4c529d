"""Checks a framework adapter without running pods: `argosy conformance framework NAME`.

An adapter is pure, so nearly everything that its pods will see can be computed. Tests call `findings`. The
key of each check is a sentence that must be true for every sample.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct
from msgspec.structs import fields, replace

from argosy.conformance.contract import NonConformance, check_framework
from argosy.frameworks.base import Framework, Injection, RankInfo, Sample
from argosy.frameworks.options import option_problems
from argosy.workload import phases
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Elastic, Phase, ResizeMode, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_INVALID_OPTION_VALUES = ({"no": "such"}, ["no such"])
_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
_NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Finding(Struct, frozen=True):
    """The result of one check of one sample; it passed if it has no problem."""

    check: str
    sample: str
    problem: str = ""
    skipped: str = ""
    """Why the check does not apply to the sample."""


class NotApplicable(Exception):  # noqa: N818 - not an error
    """The check does not apply to the sample."""


class Case(Struct, frozen=True):
    """An adapter with one of its samples."""

    framework: Framework
    sample: Sample

    @property
    def job(self) -> Workload:
        return self.sized({})

    def sized(self, changes: Mapping[str, int]) -> Workload:
        """Return the sample as a complete workload, with some of its roles resized."""
        roles = {
            name: Role(name, changes.get(name, size), _TEMPLATE, elastic=self._elastic(name))
            for name, size in self.sample.roles.items()
        }
        workload = Workload(
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
        complete = self.framework.defaults(workload)
        return replace(complete, rules=self.framework.rules(complete))

    def injections(self, job: Workload) -> dict[tuple[str, int], Injection]:
        """Return the injection of every pod, by role and index."""
        return {
            (name, index): self.framework.inject(job, role, index)
            for name, role in job.roles.items()
            for index in range(role.replicas)
        }

    def _elastic(self, name: str) -> Elastic | None:
        bounds = self.sample.elastic.get(name)
        return Elastic(*bounds) if bounds else None


Check = Callable[[Case], Iterator[str]]


def findings(framework: Framework, samples: tuple[Sample, ...]) -> Iterator[Finding]:
    """Yield the results of all checks of all samples; an exception is a problem of the adapter."""
    for sample in samples:
        for sentence, check in CHECKS.items():
            try:
                problems = list(check(Case(framework, sample)))
            except NotApplicable as error:
                yield Finding(sentence, sample.title, skipped=str(error))
                continue
            except Exception as error:  # an adapter may fail in any way
                problems = [f"{type(error).__name__}: {error}"]
            yield from (Finding(sentence, sample.title, problem) for problem in problems or [""])


def _valid_sample(case: Case) -> Iterator[str]:
    try:
        check_framework(case.framework, case.job)
    except NonConformance as error:
        yield str(error)


def _dense_ranks(case: Case) -> Iterator[str]:
    yield from _rank_problems(case, case.job)


def _rank_problems(case: Case, job: Workload) -> Iterator[str]:
    sample, rankings = case.sample, _rankings(case, job)
    by_replica = {
        replica: rank.rank for replica, rank in rankings.items() if replica[0] in sample.ranked_roles
    }
    if not sample.rank_variable and all(rank is None for rank in by_replica.values()):
        raise NotApplicable("pods get no rank")
    expected = [number * sample.slots for number in range(len(by_replica))]
    for (name, index), rank in by_replica.items():
        if rank is None:
            yield f"{name}-{index} gets no rank"
    ranks = sorted(rank for rank in by_replica.values() if rank is not None)
    if ranks != expected:
        yield f"ranks are {ranks}, not {expected}"


def _world_size(case: Case) -> Iterator[str]:
    yield from _world_problems(case, case.job)


def _world_problems(case: Case, job: Workload) -> Iterator[str]:
    sample, rankings = case.sample, _rankings(case, job)
    if not sample.world_size_variable and all(ranking.world_size is None for ranking in rankings.values()):
        raise NotApplicable("pods get no world size")
    expected = sum(job.roles[name].replicas for name in sample.ranked_roles) * sample.slots
    for (name, index), ranking in rankings.items():
        if ranking.world_size is None and sample.world_size_variable and name in sample.ranked_roles:
            yield f"{name}-{index} gets no world size"
        elif ranking.world_size not in (None, expected):
            yield f"{name}-{index} gets world size {ranking.world_size}, not {expected}"


def _rankings(case: Case, job: Workload) -> dict[tuple[str, int], RankInfo]:
    read = case.sample.read_ranks or partial(_by_variables, case.sample)
    return {replica: read(injection) for replica, injection in case.injections(job).items()}


def _by_variables(sample: Sample, injection: Injection) -> RankInfo:
    return RankInfo(
        _number(injection.env.get(sample.rank_variable)),
        _number(injection.env.get(sample.world_size_variable)),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _addresses(case: Case) -> Iterator[str]:
    """Check that every host name of the job in variables and files resolves in the pod that reads it."""
    job = case.job
    served = {name for name in job.roles if name in job.rules.services}
    full = {address: name for name, addresses in job.addresses.items() for address in addresses}
    for name in job.roles:
        full[job.service_address(name)] = name
    for (name, index), injection in case.injections(job).items():
        domains = {".".join(domain.split(".")[:1]) for domain in injection.dns_searches}
        short = {
            job.hostname(other, number): other
            for other in job.roles
            for number in range(job.roles[other].replicas)
            if job.service(other) in domains
        }
        for word in _hosts(job, injection):
            owner = full.get(word) or short.get(word)
            if owner is None:
                yield f"{name}-{index}: {word} is not the address of a pod of the job"
            elif owner not in served:
                yield f"{name}-{index}: {word} has no service: rules().services must contain {owner}"


def _hosts(job: Workload, injection: Injection) -> Iterator[str]:
    for text in (*injection.env.values(), *injection.files.values()):
        for word in _WORD.findall(text):
            if word.startswith(f"{job.name}-") or f".{job.namespace}.svc" in word:
                yield word


def _same_after_restart(case: Case) -> Iterator[str]:
    """Check that a replacement pod gets the same as its predecessor, also from another operator process."""
    again = Case(type(case.framework)(), case.sample)
    if again.injections(replace(again.job, generation=7)) != case.injections(case.job):
        yield "another instance of the adapter injects something else"


def _check_resize(case: Case) -> Iterator[str]:
    """Check that after a resize all pods restart and agree, or running pods have no outdated values."""
    for name, size in case.sample.roles.items():
        larger = case.sized({name: size + 1})
        if list(case.framework.check(larger)):
            continue  # a role that cannot be scaled
        with suppress(NotApplicable):
            yield from _rank_problems(case, larger)
        with suppress(NotApplicable):
            yield from _world_problems(case, larger)
        if larger.rules.resize is ResizeMode.LIVE and name in case.sample.elastic:
            yield from _outdated_values(case, larger)


def _outdated_values(case: Case, larger: Workload) -> Iterator[str]:
    after = _rankings(case, larger)
    for replica, before in _rankings(case, case.job).items():
        if before != after[replica]:
            yield f"{replica[0]}-{replica[1]} would need another rank or world size while it runs"


def _spare_indexes(case: Case) -> Iterator[str]:
    """Check replicas with the indexes that elastic roles use for pods in the place of others."""
    job = case.job
    for name, (_, maximum) in case.sample.elastic.items():
        role = job.roles[name]
        for index in range(role.replicas, maximum):
            injection = case.framework.inject(job, role, index)
            first = case.framework.inject(job, role, 0)
            if missing := [key for key, value in first.env.items() if value and not injection.env.get(key)]:
                yield f"{name}-{index} has no {' and no '.join(missing)}"


def _terminal_phases(case: Case) -> Iterator[str]:
    job = case.job
    rules = job.rules
    if not rules.succeeded_when or not rules.failed_when:
        yield "rules() must set succeeded_when and failed_when"
    for names in rules.succeeded_when:
        if _terminal_phase(job, dict.fromkeys(names, "Succeeded")) is not Phase.SUCCEEDED:
            yield f"the job does not succeed when {' and '.join(names)} have"
    for names in rules.failed_when:
        if _terminal_phase(job, dict.fromkeys(names, "Failed")) is not Phase.FAILED:
            yield f"the job does not fail when {' and '.join(names)} have"
    if _terminal_phase(job, {}) is not None:
        yield "the job ends while all its pods run"


def _terminal_phase(job: Workload, outcomes: Mapping[str, str]) -> Phase | None:
    """Return the terminal phase of a job whose roles have these outcomes and otherwise run; None if none."""
    pods = tuple(
        ObservedPod(
            name=f"job-{name}-{index}",
            uid=f"{name}-{index}",
            role=name,
            index=index,
            phase=outcomes.get(name, "Running"),
            created=_NOW,
        )
        for name, role in job.roles.items()
        for index in range(role.replicas)
    )
    roles = {
        name: RoleRecord(phase=Phase.RUNNING, members=IndexSet.first(role.replicas), declared=role.replicas)
        for name, role in job.roles.items()
    }
    before = Record(phase=Phase.RUNNING, attempt=1, roles=roles)
    record = phases.with_role_phases(job, before, Observed(pods=pods), _NOW)
    result = phases.terminal_result(job, record)
    return result.phase if result else None


def _invalid_options(case: Case) -> Iterator[str]:
    framework = case.framework
    names = {field.encode_name for field in fields(framework.Options)}
    for name in (*names, "noSuchOption"):
        for value in _INVALID_OPTION_VALUES:
            if not option_problems(framework.name, {name: value}, framework.Options, "spec.options"):
                yield f"option {name}: the invalid value {value} is accepted"
                break


CHECKS: Mapping[str, Check] = {
    "the sample is valid": _valid_sample,
    "ranks are unique and dense": _dense_ranks,
    "the world size is the number of ranks": _world_size,
    "every address can be resolved": _addresses,
    "pods get the same values after a restart": _same_after_restart,
    "a resize leaves no pod with outdated values": _check_resize,
    "elastic roles have pods of any index below their maximum": _spare_indexes,
    "success and failure of the job follow from its roles": _terminal_phases,
    "invalid options are rejected": _invalid_options,
}
