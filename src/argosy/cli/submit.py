"""Creates a job with the objects that it needs, and deletes jobs."""

import asyncio
from typing import NamedTuple

import click
import msgspec

from argosy.cli.fieldhints import explain_unknown_fields
from argosy.cli.jobkinds import declared_kind, pods_of
from argosy.cli.local_mounts import Manifest
from argosy.engine.client import Client
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import AlreadyExists, ApiError, BadRequest, Invalid, NotFound, Unavailable
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Pod
from argosy.kinds.resource import Resource
from argosy.kinds.trainingrun import TrainingRun


class Target(NamedTuple):
    namespace: str
    name: str


class Submitted(NamedTuple):
    namespace: str
    name: str
    kind: type[ApiObject]


async def submit(client: Client, documents: list[Manifest], namespace: str) -> Submitted:
    """Apply the other documents in their order, then create the job; an existing job is not changed.

    The job comes last, so that an error in another document leaves no job behind.
    """
    targets = [(_target(document, namespace), document) for document in documents]
    (target, job), *others = sorted(targets, key=lambda pair: declared_kind(pair[1]) is None)
    registered = declared_kind(job)
    assert registered is not None
    for (other_namespace, _), document in others:
        await _apply(client, document, other_namespace)
    submitted = Submitted(*target, registered.kind)
    await _create(client, job, submitted)
    return submitted


async def remove(client: Client, namespace: str, name: str, kind: type[ApiObject] = TrainingRun) -> bool:
    """Delete a job, wait until it and its pods are gone, and return True."""
    try:
        await client.delete(kind, name, namespace, propagation="Foreground")
    except NotFound:
        return True
    while True:
        try:
            await client.get(kind, name, namespace)
        except NotFound:
            pods = await client.list(Pod, namespace, labels=pods_of(kind).selector(name))
            if not pods.items:
                return True
        await asyncio.sleep(0.1)


async def _apply(client: Client, document: Manifest, namespace: str) -> None:
    try:
        await client.apply(dynamic_kind(await _resource(client, document)), document, namespace)
    except (BadRequest, Unavailable) as error:
        await _raise_if_unknown_fields(client, document, error)
        raise


async def _create(client: Client, document: Manifest, job: Submitted) -> None:
    try:
        await client.create(job.kind, document, job.namespace)
    except AlreadyExists as error:
        raise click.ClickException(
            f"{job.kind.resource.kind} {job.name} already exists; `argosy rm {job.name}` deletes it, "
            "`--name` gives this one another name"
        ) from error
    except Invalid as error:
        raise click.ClickException(f"rejected: {error.message}") from error
    except BadRequest as error:
        await _raise_if_unknown_fields(client, document, error)
        raise


async def _raise_if_unknown_fields(client: Client, document: Manifest, error: ApiError) -> None:
    lines = await explain_unknown_fields(client, document, error)
    if lines:
        raise click.ClickException("\n".join(lines)) from error


async def _resource(client: Client, document: Manifest) -> Resource:
    """Return the resource of a document's kind, from the API server's discovery."""
    api_version, kind = str(document["apiVersion"]), str(document["kind"])
    group, _, version = api_version.rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        discovered = msgspec.json.decode(await client.request("GET", root), type=_ResourceList)
    except NotFound as error:
        raise click.ClickException(f"{kind}: this cluster does not serve {api_version}") from error
    for resource in discovered.resources:
        if resource.kind == kind and "/" not in resource.name:
            return Resource(group, version, kind, resource.name, resource.namespaced)
    raise click.ClickException(f"{kind}: this cluster does not serve this kind in {api_version}")


class _ResourceEntry(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool


class _ResourceList(msgspec.Struct):
    resources: list[_ResourceEntry] = []


def _target(document: Manifest, namespace: str) -> Target:
    """Return namespace and name of a document; its own namespace wins over that of the command line."""
    value = document.get("metadata")
    metadata = value if isinstance(value, dict) else {}
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise click.ClickException(f"{document['kind']}: metadata.name: must be set")
    declared = metadata.get("namespace")
    return Target(declared if isinstance(declared, str) and declared else namespace, name)
