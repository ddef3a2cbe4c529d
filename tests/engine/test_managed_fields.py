"""Tests for server-side apply after a POST, against a real kube-apiserver and against our own."""

from collections.abc import AsyncIterator

import pytest

from argosy.engine.client import Client
from argosy.engine.errors import Conflict, NotFound
from argosy.engine.kubeconfig import Connection
from argosy.engine.managed_fields import claim_created_fields
from argosy.kinds.kubernetes import ConfigMap
from tests.support.servers import Server

CREATED = {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}
APPLIED = {"metadata": {"name": "a"}, "data": {"x": "3"}}


@pytest.fixture
async def client(api: Server) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(api.kubeconfig)) as client:
        yield client


async def test_apply_without_a_claim_keeps_the_fields_of_our_create(client: Client, namespace: str) -> None:
    """Why `claim_created_fields` exists."""
    await client.create(ConfigMap, CREATED, namespace)
    applied = await client.apply(ConfigMap, APPLIED, namespace, force=True)
    assert applied.data == {"x": "3", "y": "2"}


async def test_apply_after_a_claim_removes_omitted_fields(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap, CREATED, namespace)
    await claim_created_fields(client, ConfigMap, "a", namespace, created.metadata.uid)
    assert (await client.apply(ConfigMap, APPLIED, namespace)).data == {"x": "3"}


async def test_a_second_claim_writes_nothing(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap, CREATED, namespace)
    await claim_created_fields(client, ConfigMap, "a", namespace, created.metadata.uid)
    claimed = await client.get(ConfigMap, "a", namespace)
    assert claimed.metadata.resource_version != created.metadata.resource_version
    await claim_created_fields(client, ConfigMap, "a", namespace, created.metadata.uid)
    assert await client.get(ConfigMap, "a", namespace) == claimed


async def test_fields_of_another_manager_are_not_claimed(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap, CREATED, namespace)
    async with Client(client.connection, field_manager="another-manager") as other:
        await other.patch(ConfigMap, "a", {"data": {"z": "theirs"}}, namespace)
    await claim_created_fields(client, ConfigMap, "a", namespace, created.metadata.uid)
    assert (await client.apply(ConfigMap, APPLIED, namespace)).data == {"x": "3", "z": "theirs"}


async def test_an_object_of_another_creator_is_not_changed(client: Client, namespace: str) -> None:
    async with Client(client.connection, field_manager="another-manager") as other:
        theirs = await other.create(ConfigMap, CREATED, namespace)
    await claim_created_fields(client, ConfigMap, "a", namespace, theirs.metadata.uid)
    assert await client.get(ConfigMap, "a", namespace) == theirs


async def test_a_claim_of_an_object_with_another_uid_raises_conflict(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, CREATED, namespace)
    with pytest.raises(Conflict, match="another object"):
        await claim_created_fields(client, ConfigMap, "a", namespace, "00000000-0000-0000-0000-000000000000")
    with pytest.raises(NotFound):
        await claim_created_fields(client, ConfigMap, "b", namespace, "00000000-0000-0000-0000-000000000000")
