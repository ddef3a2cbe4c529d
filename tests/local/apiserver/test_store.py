import asyncio
from pathlib import Path

import msgspec
import pytest

from argosy.local.apiserver.store import Limits, NotDurableError, Store, TooOldError


def config(name: str, value: str = "1") -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "ns", "labels": {"value": value}}, "data": {"v": value}}


async def put(store: Store, name: str, value: str = "1", *, delete: bool = False) -> int:
    stored = await store.put("configmaps", config(name, value), {"value": value}, (), delete=delete)
    return stored.rv


def names(store: Store) -> list[str]:
    return [stored.name for stored in store.collection("configmaps").listed(None)]


async def test_concurrent_writes_have_different_versions_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    versions = await asyncio.gather(*[put(store, f"c{i}") for i in range(100)])
    assert versions == sorted(set(versions))
    assert len(names(store)) == 100
    store.stop()


async def test_writers_see_a_write_at_once_and_readers_when_it_is_durable(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    writing = store.put("configmaps", config("a"), {}, ())
    assert store.head("configmaps", "ns", "a") is not None
    assert store.collection("configmaps").get("ns", "a") is None
    await writing
    assert store.collection("configmaps").get("ns", "a") is not None
    store.stop()


async def test_objects_and_history_survive_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    first = await put(store, "a")
    await put(store, "a", "2")
    await put(store, "b")
    last = await put(store, "b", delete=True)
    store.stop()
    again = Store(tmp_path / "store.db")
    assert names(again) == ["a"]
    assert again.revision == last
    collection = again.collection("configmaps")
    events = collection.since(collection.position_after(first))
    assert [(event.type, event.new.name) for event in events] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "b"),
    ]
    again.stop()


async def test_history_above_its_limit_is_dropped_in_memory_and_on_disk(tmp_path: Path) -> None:
    limits = Limits(events=10)
    store = Store(tmp_path / "store.db", limits)
    store.start()
    first = await put(store, "a", "0")
    for value in range(50):
        await put(store, "a", str(value))
    assert store.compacted > first
    with pytest.raises(TooOldError):
        store.collection("configmaps").since(0)
    await put(store, "b")  # carries the deletions of rows
    store.stop()
    again = Store(tmp_path / "store.db", limits)
    assert again.compacted > first
    assert len(list(again._log.rows())) <= 14
    assert names(again) == ["a", "b"]
    again.stop()


async def test_versions_increase_after_a_restart_without_objects(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db", Limits(events=0))
    store.start()
    await put(store, "a")
    last = await put(store, "a", delete=True)
    store.stop()
    again = Store(tmp_path / "store.db")
    assert names(again) == []
    assert again.revision == last


async def test_list_of_an_old_version_shows_the_objects_of_that_version(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    await put(store, "a")
    then = await put(store, "b")
    await put(store, "a", "2")
    await put(store, "b", delete=True)
    await put(store, "c")
    before = {stored.name: stored.decoded()["data"] for stored in store.at("configmaps", "ns", then)}
    assert before == {"a": {"v": "1"}, "b": {"v": "1"}}
    store.stop()


async def test_failed_commit_fails_pending_writes_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    await put(store, "a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(store._log, "commit", full)
        results = await asyncio.gather(put(store, "b"), put(store, "c"), return_exceptions=True)
        assert all(isinstance(result, NotDurableError) for result in results)
    assert store.head("configmaps", "ns", "b") is None
    await put(store, "d")
    assert names(store) == ["a", "d"]
    store.stop()


async def test_stored_bytes_are_the_encoded_object(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    stored = await store.put("configmaps", config("a"), {}, ())
    assert msgspec.json.decode(stored.data)["metadata"]["resourceVersion"] == str(stored.rv)
    store.stop()
