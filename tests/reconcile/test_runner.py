"""Tests for the runner of kinds other than jobs, with a toy kind on a real kube-apiserver and on ours."""

from collections.abc import AsyncIterator

import pytest

from argosy.kinds import labels
from argosy.kinds.kubernetes import ConfigMap, Secret
from argosy.plan.drivers import Refusal
from tests.conftest import fresh_name, make_namespace
from tests.support.captured_logs import captured_lines
from tests.support.servers import Server
from tests.support.toy_kind import FINALIZER, PART_OF, Toy
from tests.support.toy_operator import ToyScene
from tests.support.waiting import until


@pytest.fixture
async def ready(scene: ToyScene) -> AsyncIterator[ToyScene]:
    """Yield a Toy that is ready, with a running operator."""
    await scene.create_config_map("registry")
    await scene.create(message="hello")
    with captured_lines():
        async with scene.operator():
            await scene.until_ready()
            yield scene


async def test_a_new_object_gets_its_children_a_finalizer_a_record_and_an_event(ready: ToyScene) -> None:
    toy = await ready.until_ready()
    assert toy.metadata.finalizers == [FINALIZER]
    assert toy.status.argosy == {"registry": "registry", "message": "hello", "messages": 1}
    await ready.until_data("toy-settings", {"message": "hello"})
    await ready.until_data("registry", {"toy": toy.metadata.uid})
    assert await ready.secret() is not None

    async def recorded() -> bool:
        return "Ready" in await ready.event_reasons()

    await until(recorded, "an event")


async def test_an_edited_spec_changes_the_children_that_depend_on_it(ready: ToyScene) -> None:
    secret = await ready.secret()
    await ready.edit(message="")
    toy = await ready.until_ready()
    await ready.until_data("toy-settings", {})
    assert toy.status.argosy["messages"] == 2
    assert await ready.secret() == secret


async def test_a_changed_child_is_restored(ready: ToyScene) -> None:
    patch = {"data": {"message": "drifted"}}
    await ready.client.patch(ConfigMap, "toy-settings", patch, ready.namespace)
    await ready.until_data("toy-settings", {"message": "hello"})


async def test_a_deleted_child_is_created_again(ready: ToyScene) -> None:
    for kind, name in ((ConfigMap, "toy-settings"), (Secret, "toy-key")):
        await ready.client.delete(kind, name, ready.namespace)
    await ready.until_data("toy-settings", {"message": "hello"})
    await until(ready.secret, "the Secret is back")


async def test_a_child_that_lost_its_label_gets_it_back(ready: ToyScene) -> None:
    patch = {"metadata": {"labels": {labels.UID: None}}}
    await ready.client.patch(ConfigMap, "toy-settings", patch, ready.namespace)

    async def labelled() -> bool:
        config_map = await ready.config_map("toy-settings")
        return config_map is not None and labels.UID in config_map.metadata.labels

    await until(labelled, "the label is back")


async def test_a_change_of_a_needed_object_reconciles_objects_that_named_it(scene: ToyScene) -> None:
    await scene.create(message="hello")
    with captured_lines():
        async with scene.operator():
            await scene.until_status(lambda status: status.message == "no ConfigMap registry")
            await scene.create_config_map("registry")
            await scene.until_ready()


async def test_an_object_that_starts_or_stops_matching_reconciles_objects_that_named_the_match(
    ready: ToyScene,
) -> None:
    await ready.create_config_map("part", labels={PART_OF: "toy"})
    await ready.until_data("toy-settings", {"message": "hello", "parts": "part"})
    patch = {"metadata": {"labels": {PART_OF: "another"}}}
    await ready.client.patch(ConfigMap, "part", patch, ready.namespace)
    await ready.until_data("toy-settings", {"message": "hello"})


async def test_a_deleted_object_is_released_by_the_finalizer(ready: ToyScene) -> None:
    await ready.client.delete(Toy, "toy", ready.namespace)
    await ready.until_deleted()
    await ready.until_data("registry", {})


async def test_an_object_that_was_deleted_without_an_operator_is_released_by_the_next_one(
    scene: ToyScene,
) -> None:
    await scene.create_config_map("registry")
    await scene.create(message="hello")
    with captured_lines():
        async with scene.operator():
            await scene.until_ready()
        await scene.client.delete(Toy, "toy", scene.namespace)
        toy = await scene.toy()
        assert toy is not None
        assert toy.metadata.deletion_timestamp is not None
        async with scene.operator():
            await scene.until_deleted()
    await scene.until_data("registry", {})


async def test_a_foreign_object_of_the_same_name_is_left_alone_and_reported(scene: ToyScene) -> None:
    await scene.create_config_map("registry")
    foreign = await scene.create_config_map("toy-settings", labels={"app": "theirs"})
    await scene.create(message="hello")
    with captured_lines():
        async with scene.operator():
            want = "ConfigMap toy-settings exists and does not belong to this object"
            await scene.until_status(lambda status: status.message == want)
            assert await scene.config_map("toy-settings") == foreign
            await scene.client.delete(ConfigMap, "toy-settings", scene.namespace)
            await scene.until_ready()
    await scene.until_data("toy-settings", {"message": "hello"})


async def test_a_forged_child_in_another_namespace_is_ignored(ready: ToyScene, api: Server) -> None:
    """An object in another namespace has our label and our uid as its controller."""
    settings = await ready.config_map("toy-settings")
    assert settings is not None
    elsewhere = fresh_name()
    make_namespace(api, elsewhere)
    owner = settings.metadata.owner_references[0]
    metadata = {
        "name": "toy-forged",
        "labels": settings.metadata.labels,
        "ownerReferences": [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": True,
            }
        ],
    }
    forged = await ready.client.create(ConfigMap, {"metadata": metadata}, elsewhere)
    near = await ready.client.create(ConfigMap, {"metadata": metadata}, ready.namespace)

    async def pruned() -> bool:
        return await ready.config_map("toy-forged") is None

    await until(pruned, "in the owner's namespace it counts as a child that is not wanted")
    assert near.metadata.uid != forged.metadata.uid
    await ready.edit(message="again")
    await ready.until_ready()
    assert await ready.client.get(ConfigMap, "toy-forged", elsewhere) == forged


async def test_a_call_that_is_refused_is_made_again_and_counted_once(scene: ToyScene) -> None:
    await scene.create_config_map("registry")
    await scene.create(message="hello", counter="messages")
    async with scene.operator():
        await scene.until_status(lambda status: "secret" in status.counter_problem)
        assert scene.counter.requests == {}, "without credentials nothing is sent"
        scene.counter.error = Refusal("Busy", "come back later")
        await scene.create_password()
        await scene.until_status(lambda status: "come back later" in status.counter_problem)
        scene.counter.error = None
        await scene.until_ready()
        await scene.until_status(lambda status: (status.count, status.counter_problem) == (1, ""))
    assert scene.counter.total("messages") == 1


async def test_a_change_that_only_a_view_shows_is_seen(scene: ToyScene) -> None:
    await scene.create_config_map("registry")
    await scene.create_password()
    await scene.create(message="hello", counter="messages")
    async with scene.operator():
        await scene.until_status(lambda status: status.count == 1)
        scene.counter.requests["messages"].append("somebody else")
        await scene.until_status(lambda status: status.count == 2)
