"""A namespace of an API server that may be hurt, with our definitions and two nodes that play along."""

import secrets
from collections.abc import AsyncIterator

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from argosy.kinds.volcano import VolcanoPodGroupCrd
from tests.support.faults import define
from tests.support.killable_apiserver import HurtServer
from tests.support.operator_harness import Scene
from tests.support.simulator import Simulator


@pytest.fixture
async def scene(hurt: HurtServer) -> AsyncIterator[Scene]:
    hurt.start()  # whatever the test before has killed
    async with Client(Connection.from_kubeconfig(hurt.server.kubeconfig)) as client:
        await define(client, crd_for(TrainingRun))
        await client.apply(CustomResourceDefinition, crd_for(VolcanoPodGroupCrd), force=True)
        namespace = f"t{secrets.token_hex(4)}"
        await client.create(Namespace, {"metadata": {"name": namespace}})
        await client.create(ServiceAccount, {"metadata": {"name": "default"}}, namespace)
        async with Simulator(client, ["sim-a", "sim-b"], schedule=True):
            yield Scene(client, hurt.server, namespace)
