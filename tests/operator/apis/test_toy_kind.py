"""Tests that a kind other than a job only has to be registered: the operator runs its reconciler."""

import re
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import NotFound
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import ConfigMap, CustomResourceDefinition, Lease
from argosy.kinds.meta import Json
from argosy.operator.apis.argosy import ARGOSY
from argosy.operator.apis.base import Api, start_controllers
from argosy.operator.rbac import kind_rules
from argosy.operator.settings import NAME
from argosy.plan.children import KubernetesObject
from argosy.wire.client import Client as WireClient
from argosy.wire.origin import Origin
from tests.conftest import fresh_name
from tests.support.captured_logs import captured_lines
from tests.support.operator_harness import Scene, shown_at, until_served
from tests.support.operator_rights import reader_with_rules
from tests.support.servers import free_port
from tests.support.toy_kind import FINALIZER, Toy, ToyReconciler, derive_kind, reconciled_toy
from tests.support.toy_operator import ToyScene
from tests.support.waiting import until


def toy_api(kind: type[Toy], *also_needed: type[KubernetesObject]) -> Api:
    """Return the registration of a kind of Toys, whose reconciler may also read other kinds."""
    reconciled = reconciled_toy(kind)
    needed = {**reconciled.needed, **{other: {} for other in also_needed}}
    reconciled = replace(reconciled, needed=needed)
    return Api(
        name="toys",
        custom_resources=(kind,),
        rules=kind_rules(kind, ToyReconciler.owns),
        start=start_controllers(lambda manager, _settings: manager.add_kind(reconciled)),
    )


@pytest.fixture
def toys(scene: Scene) -> ToyScene:
    """Return a namespace for a separate kind of Toys, whose CRD does not exist yet."""
    return ToyScene(scene.client, scene.server, scene.namespace, derive_kind(f"toy{fresh_name()}"))


async def define(scene: ToyScene, kind: type[Toy], *, any_message: bool = False) -> None:
    crd: Json = crd_for(kind)
    if any_message:
        spec = crd["spec"]
        assert isinstance(spec, dict)
        properties = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        properties["spec"]["properties"]["message"] = {"x-kubernetes-int-or-string": True}
    await scene.client.apply(CustomResourceDefinition, crd, force=True)
    await until_served(scene.client, kind, scene.namespace)


async def metrics(port: int) -> str:
    client = WireClient(Origin.from_url(f"http://127.0.0.1:{port}"))
    try:
        return (await client.send("GET", "/metrics", {})).body.decode()
    finally:
        await client.close()


def value(text: str, sample: str) -> float:
    """Return the value of a sample, such as `name{label="value"}`; 0 if there is none."""
    line = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.MULTILINE)
    return float(line[1]) if line else 0.0


async def test_a_registered_kind_is_reconciled_from_its_definition_to_the_deletion_of_its_objects(
    scene: Scene, toys: ToyScene
) -> None:
    port, kind = free_port(), toys.kind.resource.kind
    await toys.create_config_map("registry")
    with captured_lines():
        async with scene.operator(apis=(toy_api(toys.kind),), **shown_at(port)):
            await define(toys, toys.kind)
            await toys.create(message="hello")
            toy = await toys.until_ready()
            assert toy.metadata.finalizers == [FINALIZER]
            await toys.until_data("registry", {"toy": toy.metadata.uid})
            await toys.client.patch(ConfigMap, "toy-settings", {"data": {"message": "drift"}}, toys.namespace)
            await toys.until_data("toy-settings", {"message": "hello"})
            text = await metrics(port)
            await toys.client.delete(toys.kind, "toy", toys.namespace)
            await toys.until_deleted()
            await toys.until_data("registry", {})
    assert value(text, f'argosy_reconcile_total{{controller="{kind}",result="success"}}') >= 2
    assert value(text, f'argosy_cache_objects{{kind="{kind}"}}') == 1
    assert value(text, 'argosy_cache_objects{kind="ConfigMap (owned)"}') == 1
    assert value(text, 'argosy_cache_synced{kind="ConfigMap (needed)"}') == 1


async def test_jobs_and_other_kinds_are_served_by_one_operator(scene: Scene, toys: ToyScene) -> None:
    await define(toys, toys.kind)
    await toys.create_config_map("registry")
    await toys.create(message="hello")
    async with scene.operator(apis=(ARGOSY, toy_api(toys.kind))):
        await toys.until_ready()


async def test_an_object_that_cannot_be_decoded_is_reported_and_reconciled_once_it_is_edited(
    scene: Scene, toys: ToyScene
) -> None:
    await define(toys, toys.kind, any_message=True)
    await toys.create_config_map("registry")
    number: Json = {"metadata": {"name": "toy"}, "spec": {"message": 7}}
    await toys.client.create(dynamic_kind(toys.kind.resource), number, toys.namespace)

    async def is_reported() -> bool:
        return "InvalidSpec" in await toys.event_reasons()

    with captured_lines():
        async with scene.operator(apis=(toy_api(toys.kind),)):
            await until(is_reported, "an event InvalidSpec")
            await toys.edit(message="seven")
            await toys.until_ready()


async def test_a_kind_waits_for_a_kind_that_it_reads_and_others_do_not(scene: Scene, toys: ToyScene) -> None:
    missing = derive_kind(f"part{fresh_name()}")
    waiting = replace(toys, kind=derive_kind(f"wait{fresh_name()}"))
    for kind in (toys.kind, waiting.kind):
        await define(toys, kind)
    await toys.create_config_map("registry")
    await toys.create(name="free", message="hello")
    await waiting.create(name="held", message="hello")
    with captured_lines() as lines:
        async with scene.operator(apis=(toy_api(toys.kind), toy_api(waiting.kind, missing))):
            await toys.until_ready("free")
            held = await waiting.toy("held")
            assert held is not None
            assert held.status.phase == ""
            await define(toys, missing)
            await waiting.until_ready("held")
    assert any(
        line["event"] == "not reconciled until other kinds are served"
        and line["waiting"] == missing.resource.kind
        for line in lines
    )


async def test_another_replica_reconciles_when_the_leader_stops(scene: Scene, toys: ToyScene) -> None:
    await define(toys, toys.kind)
    await toys.create_config_map("registry")
    await toys.create(message="hello")

    async def holder() -> str:
        try:
            return (await scene.client.get(Lease, NAME, scene.namespace)).spec.holder_identity
        except NotFound:
            return ""

    with captured_lines():
        async with AsyncExitStack() as first, AsyncExitStack() as second:
            replicas = {"first": first, "second": second}
            for identity, stack in replicas.items():
                settings = {"leader_elect": True, "identity": identity}
                await stack.enter_async_context(scene.operator(apis=(toy_api(toys.kind),), **settings))
            await toys.until_ready()
            leader = await holder()
            await replicas[leader].aclose()
            await toys.edit(message="again")
            toy = await toys.until_ready()
            assert toy.status.argosy["messages"] == 2
            assert {leader, await holder()} == set(replicas)


async def test_the_listed_rules_suffice(scene: Scene, toys: ToyScene) -> None:
    port, api = free_port(), toy_api(toys.kind)
    await define(toys, toys.kind)
    await toys.create_config_map("registry")
    await toys.create(message="hello")
    async with (
        reader_with_rules(scene, api) as kubeconfig,
        scene.operator(apis=(api,), kubeconfig=kubeconfig, **shown_at(port)),
    ):
        await toys.until_ready()
        await toys.client.delete(toys.kind, "toy", toys.namespace)
        await toys.until_deleted()
        forbidden = [line for line in (await metrics(port)).splitlines() if 'code="403"' in line]
    assert forbidden == []
