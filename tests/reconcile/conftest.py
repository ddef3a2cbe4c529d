"""Fixtures for tests of reconciling on a real kube-apiserver and on our own."""

from collections.abc import AsyncIterator

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition
from tests.support.operator_harness import until_served
from tests.support.servers import Server
from tests.support.toy_kind import Toy
from tests.support.toy_operator import ToyScene


@pytest.fixture
async def scene(api: Server, namespace: str) -> AsyncIterator[ToyScene]:
    """Yield a namespace with the CRD of Toys, without an operator."""
    async with Client(Connection.from_kubeconfig(api.kubeconfig)) as client:
        await client.apply(CustomResourceDefinition, crd_for(Toy), force=True)
        await until_served(client, Toy, namespace)
        yield ToyScene(client, api, namespace)
