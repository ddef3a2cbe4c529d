"""The store of chunks in a folder: what is listed, restored, refused and deleted."""

import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from argosy.checkpoint.chunks import CHUNK_BYTES
from argosy.checkpoint.drivers.folder_bucket import FolderBucket
from argosy.checkpoint.drivers.object_store import ObjectStore
from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.store import CorruptCheckpointError, StoreError
from tests.support.checkpoints import contents, make_checkpoint, noise

BIG = 2 * CHUNK_BYTES + 1000
FILES = {"rank-0.pt": noise(1, BIG), "model/weights": b"zero" * 50_000, "empty": b""}


class Clock:
    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(root: Path, clock: Clock) -> ObjectStore:
    return ObjectStore(FolderBucket(root, f"file://{root}"), now=clock)


def chunk_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "chunks").rglob("*") if path.is_file())


def test_a_checkpoint_is_restored_as_it_was(tmp_path: Path, store: ObjectStore) -> None:
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    saved = store.publish(folder, manifest)
    assert saved.complete
    assert saved.digest == manifest.digest
    assert store.list() == [manifest]
    assert store.verify(manifest) == []
    found = store.latest()
    assert found == manifest
    store.restore(found, tmp_path / "restored")
    assert contents(tmp_path / "restored") == FILES
    assert (tmp_path / "restored" / "manifest.json").read_bytes() == (folder / "manifest.json").read_bytes()


def test_equal_chunks_are_stored_once(tmp_path: Path, store: ObjectStore, root: Path) -> None:
    changed = bytearray(FILES["rank-0.pt"])
    changed[CHUNK_BYTES + 5] ^= 1
    store.publish(*make_checkpoint(tmp_path / "work", 5, FILES))
    before = len(chunk_files(root))
    saved = store.publish(*make_checkpoint(tmp_path / "work", 6, {**FILES, "rank-0.pt": bytes(changed)}))
    assert len(chunk_files(root)) == before + 1
    assert saved.uploaded <= CHUNK_BYTES
    saved = store.publish(*make_checkpoint(tmp_path / "work", 7, {"a": noise(3, 99), "b": noise(3, 99)}))
    assert saved.uploaded == 99


def test_what_compresses_is_stored_compressed(tmp_path: Path, store: ObjectStore) -> None:
    saved = store.publish(*make_checkpoint(tmp_path / "work", 5, {"a": b"zero" * 500_000}))
    assert saved.uploaded < 10_000


def test_a_folder_that_differs_from_its_manifest_is_not_published(tmp_path: Path, store: ObjectStore) -> None:
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    (folder / "rank-0.pt").write_bytes(noise(2, BIG))
    with pytest.raises(CorruptCheckpointError, match="differs from the manifest"):
        store.publish(folder, manifest)
    (folder / "rank-0.pt").unlink()
    (folder / "rank-0.pt").symlink_to("/dev/zero")
    with pytest.raises(CorruptCheckpointError, match="rank-0"):
        store.publish(folder, manifest)
    assert store.list() == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def overwrite(path: Path, other: Path | None = None) -> None:
    path.write_bytes(other.read_bytes() if other else b"<html>")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def announce_upload(root: Path) -> None:
    """Leave what an upload under way has, or one that was killed."""
    (root / "uploads").mkdir()
    (root / "uploads" / "0123").write_text("upload")


def chunk_of(root: Path, size: int) -> Path:
    """The stored chunk of this length, which only the newest checkpoint has."""
    return next(path for path in chunk_files(root) if path.stat().st_size == size)


def file_of(root: Path, step: int, name: str) -> Path:
    """The index or manifest of a checkpoint."""
    (found,) = (root / "checkpoints").glob(f"step-{step}-*/{name}")
    return found


Damage = Callable[[Path], object]
QUICK: Mapping[str, tuple[Damage, str]] = {
    "a truncated chunk": (lambda root: truncate(chunk_of(root, 777)), "only-in-6: chunk .* is damaged"),
    "a chunk that grew": (
        lambda root: chunk_of(root, 777).write_bytes(noise(1, 1000)),
        "only-in-6: .* longer than 777 bytes",
    ),
    "a missing chunk": (lambda root: chunk_of(root, 777).unlink(), "only-in-6: chunk .* is missing"),
    "a missing index": (lambda root: file_of(root, 6, "chunks.json").unlink(), "not found"),
    "an index that is HTML": (lambda root: overwrite(file_of(root, 6, "chunks.json")), "malformed"),
    "an index of another checkpoint": (
        lambda root: overwrite(file_of(root, 6, "chunks.json"), file_of(root, 5, "chunks.json")),
        "parts: must be those of the manifest",
    ),
    "a manifest that is HTML": (lambda root: overwrite(file_of(root, 6, "manifest.json")), "malformed"),
    "a manifest of another checkpoint": (
        lambda root: overwrite(file_of(root, 6, "manifest.json"), file_of(root, 5, "manifest.json")),
        "its manifest has the digest",
    ),
}


@pytest.mark.parametrize(("damage", "reason"), QUICK.values(), ids=QUICK)
def test_latest_falls_back_and_says_why(
    tmp_path: Path, store: ObjectStore, root: Path, damage: Damage, reason: str
) -> None:
    _, good = make_checkpoint(tmp_path / "work", 5, FILES)
    _, bad = make_checkpoint(tmp_path / "work", 6, {**FILES, "only-in-6": noise(6, 777)})
    store.publish(tmp_path / "work" / "step-5", good)
    store.publish(tmp_path / "work" / "step-6", bad)
    damage(root)
    found = store.find_latest()
    assert found.manifest == good
    (skipped,) = found.skipped
    assert skipped.name == bad.name
    assert re.search(reason, skipped.reason)
    restored = store.restore_latest(tmp_path / "restored")
    assert restored.manifest == good
    assert contents(tmp_path / "restored") == FILES


def test_a_chunk_with_a_flipped_bit_is_found_when_it_is_read(
    tmp_path: Path, store: ObjectStore, root: Path
) -> None:
    _, good = make_checkpoint(tmp_path / "work", 5, FILES)
    _, bad = make_checkpoint(tmp_path / "work", 6, {**FILES, "only-in-6": noise(6, 777)})
    store.publish(tmp_path / "work" / "step-5", good)
    store.publish(tmp_path / "work" / "step-6", bad)
    flip(chunk_of(root, 777))
    assert [problem for problem in store.verify(bad) if "only-in-6: " in problem]
    with pytest.raises(CorruptCheckpointError):
        store.restore(bad, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    found = store.restore_latest(tmp_path / "restored")
    assert found.manifest == good
    assert [skipped.name for skipped in found.skipped] == [bad.name]


def test_a_broken_download_continues_where_it_stopped(tmp_path: Path, store: ObjectStore, root: Path) -> None:
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    store.publish(folder, manifest)
    last = next(path for path in chunk_files(root) if path.stat().st_size == 1000)
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(StoreError, match="not found"):
        store.restore(manifest, tmp_path / "restored")
    for path in chunk_files(root):
        if path.stat().st_size == CHUNK_BYTES:
            path.unlink()
    last.write_bytes(content)
    store.restore(manifest, tmp_path / "restored")
    assert contents(tmp_path / "restored") == FILES


def test_a_target_that_exists_is_not_touched(tmp_path: Path, store: ObjectStore) -> None:
    store.publish(*make_checkpoint(tmp_path / "work", 5, FILES))
    (tmp_path / "restored").mkdir()
    found = store.latest()
    assert found is not None
    with pytest.raises(StoreError, match="exists already"):
        store.restore(found, tmp_path / "restored")


def test_pods_with_folders_of_their_own_make_one_checkpoint(tmp_path: Path, store: ObjectStore) -> None:
    pods = []
    for rank in range(3):
        variables = {"RANK": str(rank), "WORLD_SIZE": "3", "ARGOSY_CHECKPOINT_SHARED": "0"}
        files = {f"rank-{rank}.pt": noise(rank, 5000)}
        pods.append(make_checkpoint(tmp_path / f"pod-{rank}", 5, files, **variables))
    assert [store.publish(*pod).complete for pod in pods[:2]] == [False, False]
    assert store.list() == []
    saved = store.publish(*pods[2])
    assert saved.complete
    assert store.list() == [saved.manifest]
    assert saved.manifest.ranks == ()
    store.restore(saved.manifest, tmp_path / "restored")
    assert contents(tmp_path / "restored") == {f"rank-{rank}.pt": noise(rank, 5000) for rank in range(3)}


def test_prune_deletes_older_checkpoints_and_their_chunks(
    tmp_path: Path, store: ObjectStore, root: Path, clock: Clock
) -> None:
    manifests = []
    for step in range(4):
        folder, manifest = make_checkpoint(
            tmp_path / "work", step, {"same": noise(9, 99), "own": noise(step, 100)}
        )
        store.publish(folder, manifest)
        manifests.append(manifest)
    assert store.prune(1, [manifests[1].digest]) == [manifests[2].name, manifests[0].name]
    assert store.list() == [manifests[3], manifests[1]]
    assert len(chunk_files(root)) == 5, "chunks are kept for a while, for an upload that may rely on them"
    clock.time += timedelta(hours=2)
    assert store.prune(1, [manifests[1].digest]) == []
    assert len(chunk_files(root)) == 3
    assert [store.verify(manifest) for manifest in store.list()] == [[], []]


def test_prune_removes_what_a_killed_upload_has_left(
    tmp_path: Path, store: ObjectStore, root: Path, clock: Clock
) -> None:
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    store.publish(folder, manifest)
    file_of(root, 5, "manifest.json").unlink()
    announce_upload(root)
    (root / ".uploads" / "4567").write_text("half a chunk")
    store.prune(1)
    assert chunk_files(root), "the upload may be under way"
    clock.time += timedelta(hours=2)
    store.prune(1)
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_prune_leaves_chunks_alone_during_an_upload(
    tmp_path: Path, store: ObjectStore, root: Path, clock: Clock
) -> None:
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    store.publish(folder, manifest)
    file_of(root, 5, "manifest.json").unlink()
    clock.time += timedelta(hours=2)
    announce_upload(root)
    os.utime(root / "uploads" / "0123", (clock.time.timestamp(), clock.time.timestamp()))
    store.prune(1)
    assert chunk_files(root)


def test_symbolic_links_in_a_volume_are_not_followed(
    tmp_path: Path, store: ObjectStore, root: Path, clock: Clock
) -> None:
    """Another user of the volume has put them there, and an administrator prunes it."""
    store.publish(*make_checkpoint(tmp_path / "work", 5, FILES))
    other = tmp_path / "other"
    (other / "folder").mkdir(parents=True)
    (other / "folder" / "file").write_text("precious")
    (root / "chunks" / "aa").mkdir(exist_ok=True)
    (root / "chunks" / "aa" / "link").symlink_to(other / "folder" / "file")
    (root / "chunks" / "folder").symlink_to(other / "folder")
    clock.time += timedelta(hours=2)
    store.prune(1)
    (root / "parts").symlink_to(other)
    with pytest.raises(StoreError, match="parts is a symbolic link"):
        store.prune(1)
    assert (other / "folder" / "file").read_text() == "precious"


def test_a_retried_upload_does_not_store_chunks_of_the_killed_one_again(
    tmp_path: Path, store: ObjectStore, root: Path
) -> None:
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    store.publish(folder, manifest)
    file_of(root, 5, "manifest.json").unlink()
    announce_upload(root)
    assert store.publish(folder, manifest).uploaded == 0
    assert store.list() == [manifest]


BAD_URIS = {
    "ftp://host/a": "unknown scheme; must begin with one of file://, pvc://",
    "/folder": "unknown scheme",
    "file://host/a": "must be file:/// and an absolute path",
    "file:///a/../../b": "must not have ..",
    "file:///a/%2e%2e/b": "must not have ..",
    "file:///a?b=c": "must have no user, password",
    "pvc://claim/a": "claim does not exist; mount the claim there, or set ARGOSY_PVC_ROOT",
}


@pytest.mark.parametrize(("uri", "problem"), BAD_URIS.items())
def test_a_uri_that_cannot_be_used(uri: str, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        open_store(uri)


def test_a_volume_is_found_below_its_mount_point(tmp_path: Path) -> None:
    (tmp_path / "claim").mkdir()
    store = open_store("pvc://claim/jobs/a", {"ARGOSY_PVC_ROOT": str(tmp_path)})
    store.publish(*make_checkpoint(tmp_path / "work", 5, {"a": b"1"}))
    assert (tmp_path / "claim" / "jobs" / "a" / "chunks").is_dir()
