"""The newest checkpoint of any copy of a program is restored, whatever the other copies do meanwhile."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from argosy.checkpoint.drivers import copies
from argosy.checkpoint.drivers.buckets import Bucket
from argosy.checkpoint.drivers.object_store import ObjectStore
from argosy.checkpoint.drivers.uris import open_bucket, open_copies, open_store
from argosy.checkpoint.store import Latest, Saved, StoreError
from tests.support import fake_clouds, s3_server
from tests.support.checkpoints import contents, make_checkpoint, noise
from tests.support.fake_clouds import running_fake
from tests.support.s3_server import RunningS3, require_s3_server, running_s3


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningS3]:
    require_s3_server()
    with running_s3(tmp_path_factory.mktemp("s3")) as running:
        yield running


class Copies:
    """The replicas of one job, with their folders in a store and a folder of their own each."""

    def __init__(self, uri: str, credentials: Mapping[str, str], home: Path) -> None:
        self.uri = uri
        self.credentials = credentials
        self.home = home

    def open(self, copy: int, ahead: float = 0.0) -> ObjectStore:
        """Open the store of a replica, with a clock that is some hours ahead."""

        def now() -> datetime:
            return datetime.now(UTC) + timedelta(hours=ahead)

        return ObjectStore(self.bucket(copy), now=now)

    def bucket(self, copy: int) -> Bucket:
        return open_bucket(f"{self.uri}/replica-{copy}", self.credentials)

    def save(self, copy: int, step: int, content: bytes = b"") -> Saved:
        files = {"state": content or f"{copy} at {step}".encode()}
        folder, manifest = make_checkpoint(self.home / f"replica-{copy}", step, files)
        return self.open(copy).publish(folder, manifest)

    def restore(self, copy: int) -> tuple[Latest, bytes]:
        """Return what the next pod of a replica restores."""
        target = self.home / f"restored-{copy}-{datetime.now(UTC).timestamp()}"
        latest = open_copies(self.uri, f"replica-{copy}", self.credentials).restore_latest(target)
        return latest, contents(target)["state"] if latest.manifest else b""

    def damage(self, copy: int, step: int) -> None:
        """Delete the content of a replica's checkpoint of a step, which its manifest still names."""
        bucket = self.bucket(copy)
        [manifest] = [found for found in self.open(copy).list() if found.step == step]
        index = self.open(copy)._index(manifest)
        bucket.delete([f"chunks/{c.sha256[:2]}/{c.sha256}" for c in index.chunks()])


@pytest.fixture(params=["file", "s3", "gs"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copies]:
    with ExitStack() as stack:
        path = f"team/{tmp_path.name}"
        match request.param:
            case "file":
                yield Copies(f"file://{tmp_path}/store", {}, tmp_path)
            case "s3":
                running: RunningS3 = request.getfixturevalue("s3")
                yield Copies(f"s3://{s3_server.BUCKET}/{path}", running.credentials, tmp_path)
            case _:
                fake = stack.enter_context(running_fake("gs"))
                yield Copies(f"gs://{fake_clouds.BUCKET}/{path}", fake.credentials, tmp_path)


@pytest.fixture
def folders(tmp_path: Path) -> Copies:
    """Copies whose stores are folders of this machine."""
    return Copies(f"file://{tmp_path}/store", {}, tmp_path)


def test_the_newest_checkpoint_of_any_copy_is_restored(job: Copies) -> None:
    assert job.restore(0) == (Latest(None), b"")
    job.save(0, 5)
    job.save(1, 9)
    assert job.restore(0)[1] == b"1 at 9"
    assert job.restore(2)[1] == b"1 at 9", "a replica that has saved nothing yet"
    job.save(0, 12)
    assert job.restore(1)[1] == b"0 at 12"


def test_of_two_checkpoints_of_one_step_the_own_one_is_restored(job: Copies) -> None:
    for copy in (0, 1):
        job.save(copy, 5)
    assert [job.restore(copy)[1] for copy in (0, 1)] == [b"0 at 5", b"1 at 5"]


def test_a_damaged_newest_checkpoint_is_skipped_for_the_next_one_of_any_copy(job: Copies) -> None:
    for copy, step in ((0, 5), (1, 7), (1, 9)):
        job.save(copy, step)
    job.damage(1, 9)
    latest, state = job.restore(0)
    assert state == b"1 at 7"
    assert [skipped.name.rpartition("-")[0] for skipped in latest.skipped] == ["replica-1/step-9"]
    job.damage(1, 7)
    assert job.restore(0)[1] == b"0 at 5"


def test_an_upload_that_broke_off_is_no_checkpoint(folders: Copies) -> None:
    folders.save(0, 5)
    path, manifest = make_checkpoint(folders.home / "replica-1", 9, {"state": b"new"})
    store = ObjectStore(breaking(folders.bucket(1), "checkpoints/"))
    with pytest.raises(StoreError):
        store.publish(path, manifest)
    assert folders.restore(1)[1] == b"0 at 5"
    folders.open(1).publish(path, manifest)
    assert folders.restore(0)[1] == b"new"


def test_a_store_that_fails_is_not_taken_for_an_empty_one(s3: RunningS3, tmp_path: Path) -> None:
    job = Copies(f"s3://{s3_server.BUCKET}/{tmp_path.name}", s3.credentials, tmp_path)
    job.save(0, 5)
    wrong = {**s3.credentials, "AWS_SECRET_ACCESS_KEY": "wrong"}
    with pytest.raises(StoreError):
        open_copies(job.uri, "replica-0", wrong).restore_latest(tmp_path / "restored")


def breaking(bucket: Bucket, beginning: str) -> Bucket:
    """Let a bucket refuse to store objects with this beginning."""
    store = bucket.put

    def put(key: str, content: bytes) -> None:
        if key.startswith(beginning):
            raise StoreError(f"{key}: no space left")
        store(key, content)

    return with_method(bucket, "put", put)


def interrupted(bucket: Bucket, part: str, act: Callable[[], object]) -> Bucket:
    """Let something happen right before a bucket returns the first object whose name has this part."""
    fetch, acts = bucket.get, [act]

    def get(key: str, max_bytes: int) -> bytes:
        if part in key and acts:
            acts.pop()()
        return fetch(key, max_bytes)

    return with_method(bucket, "get", get)


def with_method(bucket: Bucket, name: str, method: Callable[..., object]) -> Bucket:
    setattr(bucket, name, method)
    return bucket


def restore_during(job: Copies, part: str, act: Callable[[], object]) -> tuple[Latest, bytes]:
    """Restore as replica 0, while something happens before the first read of a part of replica 1's."""
    folder = interrupted(job.bucket(1), part, act)
    folders = copies.CopyFolders(
        open_bucket(job.uri, job.credentials),
        lambda name: folder if name == "replica-1" else job.bucket(0),
        "replica-0",
    )
    target = job.home / "restored"
    latest = folders.restore_latest(target)
    return latest, contents(target)["state"] if latest.manifest else b""


@pytest.mark.parametrize("part", ["manifest.json", "chunks.json"])
def test_a_checkpoint_that_its_copy_deletes_before_the_download_is_replaced_by_its_newer_one(
    job: Copies, part: str
) -> None:
    job.save(0, 1)
    job.save(1, 5)

    def save_on() -> None:
        job.save(1, 6)
        job.open(1).prune(1)

    latest, state = restore_during(job, part, save_on)
    assert state == b"1 at 6"
    assert latest.manifest is not None
    assert latest.manifest.step == 6


def test_chunks_of_a_checkpoint_that_is_downloaded_are_not_deleted(folders: Copies) -> None:
    folders.save(1, 5, noise(5, 4000))
    for path in (folders.home / "store").rglob("chunks/*/*"):
        os.utime(path, (1, 1))  # old enough to be deleted
    pruned: list[str] = []

    def save_on() -> None:
        folders.save(1, 6, noise(6, 4000))
        pruned.extend(folders.open(1).prune(1))

    latest, state = restore_during(folders, "chunks/", save_on)
    assert (len(pruned), state) == (1, noise(5, 4000))
    assert latest.skipped == ()
    assert not [*folders.bucket(1).list("uploads/")], "nothing keeps sweeps off any more"


def test_a_store_that_may_only_be_read_restores_all_the_same(folders: Copies, tmp_path: Path) -> None:
    folders.save(1, 5)
    manifest = folders.open(1).list()[0]
    store = ObjectStore(breaking(folders.bucket(1), "uploads/"))
    store.restore_beside_saves(manifest, tmp_path / "restored")
    assert contents(tmp_path / "restored") == {"state": b"1 at 5"}


def test_replicas_that_save_and_delete_at_once_never_take_each_others_progress(folders: Copies) -> None:
    problems: list[BaseException] = []

    def train(copy: int) -> None:
        try:
            for step in range(10, 40):
                folders.save(copy, step, noise(step, 2000))
                folders.open(copy, ahead=2).prune(1)
        except BaseException as error:
            problems.append(error)

    folders.save(0, 9)
    threads = [threading.Thread(target=train, args=(copy,)) for copy in (0, 1)]
    for thread in threads:
        thread.start()
    last, restores = 0, 0
    while any(thread.is_alive() for thread in threads):
        latest, _ = folders.restore(2)
        assert latest.manifest is not None, latest
        assert latest.manifest.step >= last, "a later restore never finds less"
        last, restores = latest.manifest.step, restores + 1
    for thread in threads:
        thread.join()
    assert not problems
    assert restores
    assert folders.restore(2)[0].manifest == max(
        (store.list()[0] for store in map(folders.open, (0, 1))), key=lambda manifest: manifest.created
    )
    assert [len(open_store(f"{folders.uri}/replica-{copy}").list()) for copy in (0, 1)] == [1, 1]
