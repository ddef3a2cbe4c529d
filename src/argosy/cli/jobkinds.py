"""Finds jobs of all registered APIs by name, and summarizes them in one form for `ps`, `describe` and `run`.

If two kinds have a job of the same name, a prefix selects one, such as `tr/NAME` or `aj/NAME`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import click

from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.objects import ApiObject
from argosy.operator.apis import registry
from argosy.operator.apis.summary import JobKind, JobSummary, PodLabels

R = TypeVar("R")


def job_kinds() -> dict[str, JobKind]:
    """Return the kinds of jobs of all APIs by their short names."""
    return {job.short_name: job for api in registry.APIS for job in api.jobs}


async def find(client: Client, namespace: str, name: str) -> ApiObject:
    """Return the job of this name; raise NotFound if no kind has one."""
    kinds = job_kinds()
    prefix, _, plain = name.rpartition("/")
    if prefix and prefix not in kinds:
        raise click.ClickException(
            f"{name}: invalid name: must be {' or '.join(f'{known_kind}/{plain}' for known_kind in kinds)}"
        )
    not_found: NotFound | None = None
    for job in (kinds[prefix],) if prefix else kinds.values():
        try:
            return await client.get(job.kind, plain, namespace)
        except NotFound as error:
            not_found = not_found or error
    assert not_found is not None
    raise not_found


async def find_all(client: Client, namespace: str | None) -> list[ApiObject]:
    """Return all jobs; raise NotFound if the cluster has no CRD of any kind of job."""

    async def list_kind(job: JobKind) -> list[ApiObject]:
        return list((await client.list(job.kind, namespace)).items)

    return [job for jobs in await for_each_kind(list_kind) for job in jobs]


async def for_each_kind(request: Callable[[JobKind], Awaitable[R]]) -> list[R]:
    """Return the results of a request for every kind that is served; raise NotFound if none is."""
    results: list[R] = []
    not_found: NotFound | None = None
    for job in job_kinds().values():
        try:
            results.append(await request(job))
        except NotFound as error:  # installed without that API
            not_found = not_found or error
    if not_found is not None and not results:
        raise not_found
    return results


def declared_kind(document: Mapping[str, object]) -> JobKind | None:
    """Return the kind of job that a manifest is; None if it is another object."""
    group = str(document.get("apiVersion")).rpartition("/")[0]
    kinds = (job for job in job_kinds().values() if job.kind.resource.group == group)
    return next((job for job in kinds if job.kind.resource.kind == document.get("kind")), None)


def kind_of(job: ApiObject) -> JobKind:
    """Return the registered kind of a job."""
    return next(candidate for candidate in job_kinds().values() if isinstance(job, candidate.kind))


def pods_of(kind: type[ApiObject]) -> PodLabels:
    """Return the labels by which the pods of a kind of job are found."""
    return next(candidate.pods for candidate in job_kinds().values() if candidate.kind is kind)


def summarize(job: ApiObject) -> JobSummary:
    """Return what is shown of a job of any kind."""
    return kind_of(job).summarize(job)
