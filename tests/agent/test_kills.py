"""An agent that is killed at any of its inputs and outputs: the next one goes on, and nothing is done twice.

Killed means that no line of it runs any more, either right before a request or an operation on a file, or
right after it was done and before its result is known.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.image_names import parse_repository
from argosy.engine.objects import Key
from argosy.wire.client import Client, Response
from tests.support.checkpoint_node import CheckpointNode, checkpoint_node
from tests.support.registry import PROGRAM, RunningRegistry, running_registry

R = TypeVar("R")

SAMPLE = range(3, 64, 12)
MAX_OPERATIONS = 1000

# A killed agent closes no files.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class KilledError(BaseException):
    """The agent does not exist any more."""


class Killer:
    """Kills the agent at its n-th operation."""

    def __init__(self, operation: int, *, before: bool) -> None:
        self._operation = operation
        self._before = before
        self.count = 0
        self.done = Counter[str]()

    async def run(self, name: str, action: Callable[[], Awaitable[R]]) -> R:
        number, self.count = self.count, self.count + 1
        if number == self._operation and self._before:
            raise KilledError
        result = await action()
        self.done[name] += 1
        if number == self._operation:
            raise KilledError
        return result


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    if PROGRAM is None:
        pytest.skip("docker-registry is not installed")
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


async def check_kill(
    operation: int,
    before: bool,
    prunes: bool,
    registry: RunningRegistry,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> bool:
    """Kill an agent once and let another one finish; returns False if the operation was never reached."""
    killer = Killer(operation, before=before)
    repository = parse_repository(f"{registry.address}/kills/{folder.name.replace('_', '-')}")
    async with checkpoint_node(folder, prunes=prunes) as node:
        await node.add_pod("train-0", "main", "side-car")
        target = {"url": registry.address, "repository": repository.path}
        await node.add_backup(registry=target, stopPod=True)
        killed = False
        async with node.agent() as agent:
            with monkeypatch.context() as patches:
                _patch(patches, killer)
                try:
                    for _ in range(20):
                        await agent.reconcile(Key("research", "backup"))
                except KilledError:
                    killed = True
        await node.reconcile()
        await _check_result(node, repository, prunes=prunes)
    return killed


def _patch(patches: pytest.MonkeyPatch, killer: Killer) -> None:
    send, to_thread = Client.send, asyncio.to_thread

    async def killed_send(
        self: Client, method: str, target: str, *args: object, **options: object
    ) -> Response:
        return await killer.run(method, lambda: send(self, method, target, *args, **options))  # type: ignore[arg-type]

    async def killed_thread(function: Callable[..., R], /, *args: object, **options: object) -> R:
        return await killer.run("file", lambda: to_thread(function, *args, **options))

    patches.setattr(Client, "send", killed_send)
    patches.setattr(asyncio, "to_thread", killed_thread)


async def _check_result(node: CheckpointNode, repository: object, *, prunes: bool) -> None:
    status = node.backup().status
    assert (status.phase, status.message.partition("one after")[0]) == (
        "CompletedPodDeleted",
        "the containers are checkpointed ",
    )
    assert node.kubelet.dumps == ["main", "side-car"]
    assert node.api.deleted == ["train-0"]
    assert node.archives() == []
    parsed = parse_repository(str(repository))
    async with Registry(parsed.registry) as client:
        tags = sorted(await client.tags(parsed))
        assert tags == sorted(image.image_name.rpartition(":")[2] for image in status.built_images)
        digests = {tag.rpartition("-")[0]: await client.head_manifest(parsed.image(tag)) for tag in tags}
    assert [image.pushed for image in status.built_images] == [True, True]
    if not prunes:
        assert status.digests == digests


@pytest.mark.parametrize(
    ("before", "prunes"),
    [(True, False), (False, True)],
    ids=["before, with our CRD", "after, with the CRD of the original"],
)
@pytest.mark.parametrize("operation", SAMPLE)
async def test_nothing_is_done_twice(
    operation: int,
    before: bool,
    prunes: bool,
    registry: RunningRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await check_kill(operation, before, prunes, registry, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("prunes", [False, True], ids=["our CRD", "CRD of the original"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_nothing_is_done_twice_wherever_it_is_killed(
    before: bool,
    prunes: bool,
    registry: RunningRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for operation in range(MAX_OPERATIONS):
        folder = tmp_path / f"{before}-{prunes}-{operation}".lower()
        folder.mkdir()
        if not await check_kill(operation, before, prunes, registry, folder, monkeypatch):
            assert operation > 30
            return
    raise AssertionError("a backup takes more operations than are tried")
