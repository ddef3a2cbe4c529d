"""A namespace of either API server, with our kinds defined."""

from collections.abc import AsyncIterator

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.aresjob import AresJob
from argosy.kinds.crd import crd_for
from argosy.kinds.crd_options import CustomResource
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.pod_groups import VolcanoPodGroup
from argosy.kinds.trainingrun import TrainingRun
from argosy.kinds.volcano import VolcanoPodGroupCrd
from argosy.operator.apis.registry import CUSTOM_RESOURCES
from tests.support.operator_harness import Scene, until_served
from tests.support.servers import Server


@pytest.fixture
async def scene(api: Server, namespace: str) -> AsyncIterator[Scene]:
    async with Client(Connection.from_kubeconfig(api.kubeconfig)) as client:
        kinds: list[type[CustomResource]] = [*CUSTOM_RESOURCES, VolcanoPodGroupCrd]
        for kind in kinds:
            await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
        for served in (TrainingRun, AresJob, VolcanoPodGroup):
            await until_served(client, served, namespace)
        yield Scene(client, api, namespace)
