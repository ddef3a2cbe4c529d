"""A namespace of a killable API server, with the CRDs of the operator and two simulated nodes."""

import secrets
from collections.abc import AsyncIterator

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from argosy.kinds.volcano import VolcanoPodGroupCrd
from tests.support.faults import install_crd
from tests.support.killable_apiserver import KillableApiServer
from tests.support.operator_harness import Scene
from tests.support.simulator import Simulator


@pytest.fixture
async def scene(killable_apiserver: KillableApiServer) -> AsyncIterator[Scene]:
    killable_apiserver.start()  # the test before may have killed a part of it
    async with Client(Connection.from_kubeconfig(killable_apiserver.server.kubeconfig)) as client:
        await install_crd(client, crd_for(TrainingRun))
        await client.apply(CustomResourceDefinition, crd_for(VolcanoPodGroupCrd), force=True)
        namespace = f"t{secrets.token_hex(4)}"
        await client.create(Namespace, {"metadata": {"name": namespace}})
        await client.create(ServiceAccount, {"metadata": {"name": "default"}}, namespace)
        async with Simulator(client, ["sim-a", "sim-b"], schedule=True):
            yield Scene(client, killable_apiserver.server, namespace)
