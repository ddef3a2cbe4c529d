"""The label that says what can be restored on the node."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from argosy.agent.capability import CapabilityLabel, criu_problem, runtime_problem
from argosy.agent.objects import OwnNode
from argosy.agent.settings import AgentSettings
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.kinds.spot import RESTORE_CAPABILITY
from tests.support.checkpoint_node import meta
from tests.support.fake_apiserver import FakeServer
from tests.support.waiting import eventually

WORKS, FAILS = ("sh", "-c", "exit 0"), ("sh", "-c", "exit 1")

RUNTIMES = {
    "containerd 2: may restore": ("containerd://2.0.1", False),
    "containerd 1: restores nothing": ("containerd://1.7.27", True),
    "CRI-O 1.30: may restore": ("cri-o://1.30.2", False),
    "CRI-O 1.24: restores nothing": ("cri-o://1.24.0", True),
    "Docker: restores nothing": ("docker://27.1.0", True),
    "not known yet: may restore": ("", False),
    "local control plane: may restore": ("argosy://0.1", False),
}


@pytest.mark.parametrize("case", RUNTIMES)
def test_container_runtimes(case: str) -> None:
    version, want_problem = RUNTIMES[case]
    assert bool(runtime_problem(version)) == want_problem


async def test_criu_is_asked_whether_it_works() -> None:
    assert await criu_problem(WORKS) == ""
    assert await criu_problem(FAILS) == "criu check: exit code 1"
    assert "No such file" in await criu_problem(["/does/not/exist"])


@asynccontextmanager
async def labelling(server: FakeServer, setting: str, command: Sequence[str]) -> AsyncIterator[None]:
    settings = AgentSettings(node="n", restore_capability=setting, host_command=tuple(command))
    async with Client(server.connection()) as client:
        nodes = Cache(client, OwnNode, fields="metadata.name=n")
        tasks = [
            asyncio.create_task(task)
            for task in (nodes.run(), CapabilityLabel(client, nodes, settings).run())
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def label(server: FakeServer) -> object:
    [node] = server.objects("nodes")
    labels = meta(node).get("labels") or {}
    assert isinstance(labels, dict)
    return labels.get(RESTORE_CAPABILITY)


LABELS = {
    "CRIU does not work: none": ("auto", FAILS, "", "none"),
    "CRIU works: no label": ("auto", WORKS, "none", None),
    "CRIU works and the administrator has labelled the node: kept": ("auto", WORKS, "image", "image"),
    "set to image: image, whatever CRIU says": ("image", FAILS, "none", "image"),
}


@pytest.mark.parametrize("case", LABELS)
async def test_label(case: str) -> None:
    setting, command, before, want = LABELS[case]
    async with FakeServer() as server:
        metadata = {"name": "n", "labels": {RESTORE_CAPABILITY: before} if before else {}}
        info = {"nodeInfo": {"containerRuntimeVersion": "containerd://2.2.0"}}
        await server.put("nodes", {"metadata": metadata, "status": info})
        async with labelling(server, setting, command):
            await eventually(lambda: label(server) == want)
            # What others write is put right, too.
            await server.put(
                "nodes", {"metadata": {"name": "n", "labels": {RESTORE_CAPABILITY: "none"}}, "status": info}
            )
            await eventually(
                lambda: label(server) == (None if want == "image" and setting == "auto" else want)
            )
