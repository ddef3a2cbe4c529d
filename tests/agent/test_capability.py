"""The labels that say what can be restored on the node, and of whose processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from argosy.agent.capability import CapabilityLabel, runtime_problem
from argosy.agent.kubelet import Kubelet
from argosy.agent.objects import OwnNode
from argosy.agent.settings import AgentSettings
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.kinds.spot import CHECKPOINT_USERS, RESTORE_CAPABILITY
from tests.support.checkpoint_node import NODE, CheckpointNode, checkpoint_node, meta
from tests.support.host_command import host_command
from tests.support.raw_server import http
from tests.support.waiting import eventually

RUNTIMES = {
    "containerd 2: may restore": ("containerd://2.0.1", False),
    "containerd 1: restores nothing": ("containerd://1.7.27", True),
    "CRI-O 1.30: may restore": ("cri-o://1.30.2", False),
    "CRI-O 1.24: restores nothing": ("cri-o://1.24.0", True),
    "Docker: restores nothing": ("docker://27.1.0", True),
    "the node does not name its runtime yet: may restore": ("", False),
    "local control plane: may restore": ("argosy://0.1", False),
}


@pytest.mark.parametrize("case", RUNTIMES)
def test_container_runtimes(case: str) -> None:
    version, want_problem = RUNTIMES[case]
    assert bool(runtime_problem(version)) == want_problem


WORKS, RESTORES = "problem=\nusers=", "enable_experimental_restore_via_create = true"
CRIU_IN_CRIO = "enable_criu_support = true"
EXISTS, DISABLED = http(404, b"pod does not exist"), http(404, b"404: Page Not Found")


class Case(Struct):
    criu: str = WORKS
    """What the script on the host prints."""
    config: str = RESTORES
    """The configuration of the container runtime."""
    kubelet: bytes = EXISTS
    runtime: str = "containerd://2.2.0"
    setting: str = "auto"
    before: str = ""
    want: str = "image"
    want_users: str = ""


LABELS = {
    "all works, and the runtime restores: image": Case(),
    "all works, and nothing says that the runtime restores: no label": Case(config="other = true", want=""),
    "the runtime's configuration says false: no label": Case(
        config=RESTORES.replace("true", "false"), before="none", want=""
    ),
    "nothing says that the runtime restores, but the administrator does: kept": Case(
        config="", before="image"
    ),
    "CRI-O that is configured to restore: image": Case(
        runtime="cri-o://1.34.14", config='container_level_enabled = "checkpoint_restore"\n' + CRIU_IN_CRIO
    ),
    "CRI-O that is configured to make checkpoints only: none": Case(
        runtime="cri-o://1.34.14",
        config='container_level_enabled = "checkpoint_only"\n' + CRIU_IN_CRIO,
        before="image",
        want="none",
    ),
    "local control plane: image": Case(runtime="argosy://0.1", config=""),
    "CRIU does not work: none": Case(criu="problem=criu check: no", before="image", want="none"),
    "runtime too old: none": Case(runtime="containerd://1.7.27", want="none"),
    "kubelet without checkpoints: none": Case(kubelet=DISABLED, want="none"),
    "kubelet that forbids them: none": Case(kubelet=http(403, b"no"), want="none"),
    "processes of root only: image, and the label for users": Case(
        criu="problem=\nusers=Can't get rlimit 0", want_users="root"
    ),
    "not known of other users: no label for them": Case(criu="problem="),
    "set to image: image, whatever is found": Case(
        criu="problem=no", setting="image", before="none", want="image"
    ),
    "set to none: none": Case(setting="none", want="none"),
}


@asynccontextmanager
async def labelling(node: CheckpointNode, setting: str, command: tuple[str, ...]) -> AsyncIterator[None]:
    settings = AgentSettings(node=NODE, restore_capability=setting, host_command=command)
    async with Client(node.connection) as client:
        nodes = Cache(client, OwnNode, fields=f"metadata.name={NODE}")
        labels = CapabilityLabel(client, nodes, Kubelet(node.connection), settings)
        tasks = [asyncio.create_task(task) for task in (nodes.run(), labels.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def labels(node: CheckpointNode) -> tuple[str, str]:
    [found] = node.api.objects("nodes")
    existing = meta(found).get("labels") or {}
    assert isinstance(existing, dict)
    return existing.get(RESTORE_CAPABILITY, ""), existing.get(CHECKPOINT_USERS, "")


async def set_labels(node: CheckpointNode, runtime: str, **labels: str) -> None:
    [found] = node.api.objects("nodes")
    status = {**found["status"], "nodeInfo": {"containerRuntimeVersion": runtime}}  # type: ignore[dict-item]
    named = {f"training.dcnlab.com/{name.replace('_', '-')}": value for name, value in labels.items()}
    await node.api.put("nodes", {"metadata": {"name": NODE, "labels": named}, "status": status})


@pytest.mark.parametrize("case", LABELS.values(), ids=LABELS.keys())
async def test_labels(case: Case, tmp_path: Path) -> None:
    async with checkpoint_node(tmp_path) as node:
        node.kubelet.answer = case.kubelet
        wrong = {"restore_capability": case.before} if case.before else {}
        # One that is wrong in any case shows that labels are written at all.
        await set_labels(node, case.runtime, checkpoint_users="nobody", **wrong)
        command = host_command(tmp_path, case.criu, case.config)
        async with labelling(node, case.setting, command):
            await eventually(lambda: labels(node) == (case.want, case.want_users))
            kept = {"restore_capability": case.want} if case.want else {}
            await set_labels(node, case.runtime, checkpoint_users="nobody", **kept)  # what others write
            await eventually(lambda: labels(node) == (case.want, case.want_users))


async def test_nothing_is_labelled_until_the_kubelet_answers(tmp_path: Path) -> None:
    async with checkpoint_node(tmp_path) as node:
        await set_labels(node, "containerd://2.2.0", restore_capability="pod")
        node.kubelet.answer = http(503, b"starting")
        async with labelling(node, "auto", host_command(tmp_path, WORKS, RESTORES)):
            await eventually(lambda: len(node.kubelet_server.calls) > 1)
            assert labels(node) == ("pod", "")
            node.kubelet.answer = EXISTS
            await eventually(lambda: labels(node) == ("image", ""))
