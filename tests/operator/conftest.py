"""A namespace of either API server, with our kinds defined."""

import json
from collections.abc import AsyncIterator

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.urls import metadata_only_header
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

KINDS: tuple[type[CustomResource], ...] = (*CUSTOM_RESOURCES, VolcanoPodGroupCrd)
Generations = dict[str, tuple[str, int]]
"""The uid and the generation of each definition on a server."""


@pytest.fixture(scope="session")
def defined() -> dict[str, Generations]:
    """The definitions that tests of this process have applied, for each server."""
    return {}


@pytest.fixture
async def scene(api: Server, namespace: str, defined: dict[str, Generations]) -> AsyncIterator[Scene]:
    """A namespace of a server with the definitions, which are applied again only if a test changed them."""
    async with Client(Connection.from_kubeconfig(api.kubeconfig)) as client:
        if api.url not in defined or await _generations(client) != defined[api.url]:
            for kind in KINDS:
                await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
            defined[api.url] = await _generations(client)
        for served in (TrainingRun, AresJob, VolcanoPodGroup):
            await until_served(client, served, namespace)
        yield Scene(client, api, namespace)


async def _generations(client: Client) -> Generations:
    path = CustomResourceDefinition.resource.path()
    listed = json.loads(await client.request("GET", path, headers={"Accept": metadata_only_header("List")}))
    metadata = {item["metadata"]["name"]: item["metadata"] for item in listed["items"]}
    names = {f"{kind.resource.plural}.{kind.resource.group}" for kind in KINDS}
    return {name: (metadata[name]["uid"], metadata[name]["generation"]) for name in names & metadata.keys()}
