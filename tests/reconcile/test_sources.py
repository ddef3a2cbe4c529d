"""Tests for the caches that reconcilers read, and for reconciles that changes of needed objects trigger."""

from collections.abc import Iterable

import pytest

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import Key
from argosy.kinds import labels
from argosy.kinds.kubernetes import ConfigMap, SecretMetadata
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.plan.children import KubernetesObject, Owner
from argosy.plan.contract import Matching, Need, Ref
from argosy.reconcile.sources import NeedIndex, Sources

OWNER = Owner("example.com/v1", "Toy", "home", "a", "uid-a")


def by_label(obj: KubernetesObject) -> Iterable[str]:
    return (obj.metadata.labels["team"],) if "team" in obj.metadata.labels else ()


@pytest.fixture
def sources() -> Sources:
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    sources = Sources(nowhere)
    sources.declare((ConfigMap, SecretMetadata), {ConfigMap: {"team": by_label}})
    return sources


def config_map(name: str, *, namespace: str = "home", owner: str = "", **own_labels: str) -> ConfigMap:
    marked = {**own_labels, labels.UID: owner} if owner else own_labels
    return ConfigMap(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            resource_version="1",
            labels=marked,
            owner_references=[OwnerReference(uid=owner, controller=True)] if owner else [],
        )
    )


def test_a_shared_cache_meets_needs_of_its_kind() -> None:
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    sources, cache = Sources(nowhere), Cache(nowhere, ConfigMap)
    sources.share(cache)
    assert sources.declare((), {ConfigMap: {"team": by_label}}) == (cache,)
    cache.put(config_map("a", team="x"))
    assert [obj.metadata.name for obj in sources.find(Matching(ConfigMap, "team", "x"))] == ["a"]
    assert sources.shared(ConfigMap) is cache
    assert sources.shared(SecretMetadata) is None


def test_children_are_those_of_the_owner_in_its_namespace(sources: Sources) -> None:
    for obj in (
        config_map("ours", owner="uid-a"),
        config_map("another's", owner="uid-b"),
        config_map("forged", namespace="elsewhere", owner="uid-a"),
        config_map("nobody's"),
    ):
        sources.put(obj)
    children = sources.children_of(OWNER, (ConfigMap, SecretMetadata))
    assert [child.metadata.name for child in children] == ["ours"]
    assert sources.children_of(OWNER, (SecretMetadata,)) == ()


def by_name(obj: KubernetesObject) -> Iterable[str]:
    return (obj.metadata.name,)


def test_reconcilers_that_declare_the_same_kinds_share_their_caches(sources: Sources) -> None:
    sources.put(config_map("x", team="red"))
    before = sources.caches
    shared = sources.declare((ConfigMap,), {ConfigMap: {"team": by_label, "name": by_name}})
    assert shared == (sources.children[ConfigMap], sources.needed[ConfigMap])
    assert sources.caches == before
    for need in (Matching(ConfigMap, "team", "red"), Matching(ConfigMap, "name", "x")):
        assert [obj.metadata.name for obj in sources.find(need)] == ["x"]


def test_two_indexes_of_one_name_and_kind_are_rejected(sources: Sources) -> None:
    with pytest.raises(ValueError, match="ConfigMap has two different indexes of the name team"):
        sources.declare((), {ConfigMap: {"team": by_name}})


def test_needs_find_objects_by_name_and_by_index(sources: Sources) -> None:
    red, blue = config_map("x", team="red"), config_map("y", team="blue")
    sources.put(red)
    sources.put(blue)
    assert sources.find(Ref(ConfigMap, "x", "home")) == (red,)
    assert sources.find(Ref(ConfigMap, "x", "elsewhere")) == ()
    assert sources.find(Matching(ConfigMap, "team", "blue")) == (blue,)
    assert sources.find(Matching(ConfigMap, "team", "green")) == ()


def test_a_change_meets_needs_of_the_old_and_the_new_object(sources: Sources) -> None:
    change = Change[KubernetesObject](config_map("x", team="red"), config_map("x", team="blue"))
    assert sources.needs_met_by(change) == {
        Ref(ConfigMap, "x", "home"),
        Matching(ConfigMap, "team", "red"),
        Matching(ConfigMap, "team", "blue"),
    }


def test_only_the_last_needs_of_an_object_count() -> None:
    index = NeedIndex()
    a, b = Key("home", "a"), Key("home", "b")
    x: Need = Ref(ConfigMap, "x", "home")
    y: Need = Ref(ConfigMap, "y", "home")
    index.replace(a, (x, y))
    index.replace(b, (x,))
    assert (index.keys([x]), index.keys([y]), index.keys([x, y])) == ({a, b}, {a}, {a, b})
    index.replace(a, (x,))
    assert (index.keys([x]), index.keys([y])) == ({a, b}, set())
    index.replace(a, ())
    index.replace(b, ())
    assert len(index) == 0
