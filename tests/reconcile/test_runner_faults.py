"""Tests for the runner with invalid CRDs, undecodable objects and lost leadership."""

import asyncio
from dataclasses import replace

import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.engine.leader import Leader
from argosy.engine.objects import key_of
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.meta import Json
from tests.conftest import fresh_name
from tests.support.captured_logs import captured_lines
from tests.support.operator_harness import until_served
from tests.support.toy_kind import Toy, derive_kind
from tests.support.toy_operator import ToyOperator, ToyScene
from tests.support.waiting import until


@pytest.fixture
def odd(scene: ToyScene) -> ToyScene:
    """Return a scene with a separate kind of Toys, whose CRD does not exist yet."""
    return replace(scene, kind=derive_kind(f"odd{fresh_name()}"))


async def _define(
    scene: ToyScene, *, keeps_record: bool = True, has_status: bool = True, any_message: bool = False
) -> None:
    crd = crd_for(scene.kind)
    versions = _part(crd, "spec")["versions"]
    assert isinstance(versions, list)
    properties = _part(versions[0], "schema", "openAPIV3Schema", "properties")
    if not keeps_record:
        del _part(properties, "status", "properties")["argosy"]
    if not has_status:
        del versions[0]["subresources"]
    if any_message:
        _part(properties, "spec", "properties")["message"] = {"x-kubernetes-int-or-string": True}
    await scene.client.apply(CustomResourceDefinition, crd, force=True)
    await until_served(scene.client, scene.kind, scene.namespace)


def _part(value: object, *names: str) -> Json:
    for name in names:
        assert isinstance(value, dict)
        value = value[name]
    assert isinstance(value, dict)
    return value


UNFIT = {
    "a definition that prunes the Record": ({"keeps_record": False}, "IncompatibleCRD"),
    "a definition without the status subresource": ({"has_status": False}, "StatusUpdateFailed"),
}


@pytest.mark.parametrize(("defined", "reason"), UNFIT.values(), ids=UNFIT.keys())
async def test_nothing_is_created_while_the_record_cannot_be_kept(
    odd: ToyScene, defined: dict[str, bool], reason: str
) -> None:
    await _define(odd, **defined)
    await odd.create_config_map("registry")
    await odd.create(message="hello")

    async def reported() -> bool:
        return reason in await odd.event_reasons()

    with captured_lines():
        async with odd.operator():
            await until(reported, f"an event {reason}")
            assert await odd.secret() is None
            assert await odd.config_map("toy-settings") is None
            await odd.until_data("registry", {})
            await _define(odd)
            await odd.until_ready()


async def test_an_object_whose_record_a_later_operator_wrote_is_left_alone(scene: ToyScene) -> None:
    await scene.create_config_map("registry")
    await scene.create(message="hello")
    status = {"status": {"argosy": {"version": 2, "registry": "elsewhere"}}}
    before = await scene.client.patch(Toy, "toy", status, scene.namespace, subresource="status")

    async def reported() -> bool:
        return "UnsupportedRecordVersion" in await scene.event_reasons()

    with captured_lines():
        async with scene.operator():
            await until(reported, "an event UnsupportedRecordVersion")
    assert await scene.toy() == before
    assert await scene.secret() is None


_NUMBERED: Json = {"metadata": {"name": "toy"}, "spec": {"message": 7}}


async def test_an_object_that_does_not_fit_its_type_is_reported_and_cured_by_editing(
    odd: ToyScene,
) -> None:
    await _define(odd, any_message=True)
    await odd.create_config_map("registry")
    await odd.client.create(dynamic_kind(odd.kind.resource), _NUMBERED, odd.namespace)

    async def reported() -> bool:
        return "InvalidSpec" in await odd.event_reasons()

    with captured_lines():
        async with odd.operator():
            await until(reported, "an event InvalidSpec")
            assert await odd.secret() is None
            await odd.edit(message="seven")
            await odd.until_ready()


async def test_a_replica_that_lost_the_lease_writes_nothing_and_the_next_leader_goes_on(
    scene: ToyScene,
) -> None:
    await scene.create_config_map("registry")
    await scene.create(message="hello")
    leaders = [
        Leader(scene.client, "toys", scene.namespace, name, duration=3, renew_deadline=2, retry=0.2)
        for name in ("first", "second")
    ]
    with captured_lines():
        async with (
            scene.operator(deadline=leaders[0].deadline) as first,
            scene.operator(deadline=leaders[1].deadline) as second,
        ):
            leading = asyncio.create_task(leaders[0].run(first.lead))
            await scene.until_ready()
            secret = await scene.secret()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)
            await scene.edit(message="bye")
            stale = asyncio.create_task(first.lead())  # as if it had not noticed
            leading = asyncio.create_task(leaders[1].run(second.lead))
            await scene.until_ready()
            await scene.until_data("toy-settings", {"message": "bye"})
            assert leaders[0].deadline() < 0
            stale.cancel()
            leading.cancel()
            await asyncio.gather(stale, leading, return_exceptions=True)
    toy = await scene.until_ready()
    assert toy.status.argosy["messages"] == 2
    assert await scene.secret() == secret


async def test_a_leader_whose_cache_lags_does_not_undo_what_the_one_before_it_did(
    scene: ToyScene,
) -> None:
    """Its decision needs no status write, so only the confirmed version prevents the action."""
    await scene.create(message="hello")
    with captured_lines():
        async with scene.operator():
            await scene.until_status(lambda status: status.message == "no ConfigMap registry")
            await scene.until_data("toy-settings", {"message": "hello"})
            old = await scene.toy()
            assert old is not None
            await scene.edit(message="bye")
            await scene.until_data("toy-settings", {"message": "bye"})
        lagging = ToyOperator(scene.client, scene.namespace)
        lagging.toys.put(old)
        caches = [asyncio.create_task(cache.run()) for cache in lagging.sources.caches]
        await asyncio.gather(*(cache.wait_synced() for cache in lagging.sources.caches))
        await lagging.runner.begin_term()
        await lagging.runner.reconcile(key_of(old))
        for cache in caches:
            cache.cancel()
        await asyncio.gather(*caches, return_exceptions=True)
    await scene.until_data("toy-settings", {"message": "bye"})
