"""Tests that a new operator finishes the work of one that was killed at any of its requests."""

import asyncio
from dataclasses import replace

import pytest

from argosy.kinds.kubernetes import ConfigMap
from tests.conftest import fresh_name, make_namespace
from tests.support.captured_logs import captured_lines
from tests.support.counter import Counter
from tests.support.servers import Server
from tests.support.toy_kind import FINALIZER, Toy
from tests.support.toy_operator import NEVER, Killing, ToyScene

AT_ONCE = 8
"""Lives that are lived side by side."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "every", [4, pytest.param(1, marks=pytest.mark.long)], ids=["a sample", "all requests"]
)
@pytest.mark.parametrize("answered", [False, True], ids=["before it is sent", "before its answer arrives"])
async def test_a_kill_at_every_request_changes_nothing(
    scene: ToyScene, api: Server, answered: bool, every: int
) -> None:
    """In the sample the two kinds of kills happen at different requests."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def live(at: int) -> Killing:
        killing, namespace = Killing(at, answered=answered), fresh_name()
        async with limit:
            make_namespace(api, namespace)
            life = replace(scene, namespace=namespace, counter=Counter())
            await killing.run(life, _live, _check_what_was_left)
        return killing

    with captured_lines():
        undisturbed = (await live(NEVER)).requests
        assert undisturbed > 15, "fewer requests than a life takes"
        first = 1 + answered * (every // 2)
        lives = await asyncio.gather(*(live(at) for at in range(first, undisturbed + 1, every)))
    killed = [life for life in lives if life.killed.is_set()]
    few = -(-3 // every)
    assert len(killed) >= len(lives) - few, "the number of requests differs a little from life to life"


async def _live(scene: ToyScene) -> None:
    """Take one object through its lifecycle: create, edit, interfere, delete."""
    await scene.create_config_map("registry")
    await scene.create_config_map("second")
    await scene.create_password()
    await scene.create(message="hello", counter="messages")
    first = await scene.until_ready()
    await scene.until_data("toy-settings", {"message": "hello"})
    await scene.until_data("registry", {"toy": first.metadata.uid})
    secret = await scene.secret()
    assert secret is not None

    await scene.edit(message="bye", registry="second")
    toy = await scene.until_ready()
    await scene.until_data("toy-settings", {"message": "bye"})
    await scene.until_data("registry", {})
    await scene.until_data("second", {"toy": toy.metadata.uid})

    patch = {"data": {"message": "drifted"}, "metadata": {"annotations": {"note": "theirs"}}}
    await scene.client.patch(ConfigMap, "toy-settings", patch, scene.namespace)
    settings = await scene.until_data("toy-settings", {"message": "bye"})
    assert settings.metadata.annotations["note"] == "theirs"
    toy = await scene.until_ready()
    want = {"registry": "second", "message": "bye", "messages": 2, "counted": ["count-1", "count-2"]}
    assert toy.status.argosy == want
    assert scene.counter.total("messages") == 2
    await scene.until_status(lambda status: status.count == 2)
    assert await scene.secret() == secret

    await scene.client.delete(Toy, "toy", scene.namespace)
    await scene.until_deleted()
    await scene.until_data("second", {})


async def _check_what_was_left(scene: ToyScene) -> None:
    """Check that every existing child was recorded before, and that the Toy has its finalizer if needed."""
    toy = await scene.toy()
    counted = scene.counter.total("messages")
    if toy is not None:
        recorded_messages = toy.status.argosy.get("messages", 0)
        assert isinstance(recorded_messages, int)
        assert recorded_messages >= counted, "recorded before it is counted"
    recorded = toy.status.argosy.get("registry") if toy is not None else None
    for name in ("registry", "second"):
        registry = await scene.config_map(name)
        if registry is not None and "toy" in registry.data:
            assert toy is not None
            assert (toy.metadata.finalizers, recorded) == ([FINALIZER], name)
    if toy is not None and await scene.secret() is not None:
        assert recorded
