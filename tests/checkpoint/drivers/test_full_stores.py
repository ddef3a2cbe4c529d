"""An S3 server and a registry without space: uploads fail and say why, and what is listed stays complete.

The servers keep their content in a small file system, which a file of the test fills.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from argosy.checkpoint.drivers import cloud_bucket, registry_connection
from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.store import Store
from argosy.helper.checkpoint_folder import CheckpointFolder
from tests.support.checkpoints import noise
from tests.support.publishing_pod import Pod
from tests.support.registry import PROGRAM, running_registry
from tests.support.s3_server import BUCKET, require_s3_server, running_s3

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

DISK_BYTES = 40_000_000
LEFT_BYTES = 3_000_000
CONTENT_BYTES = 10_000_000
"""Of a checkpoint: more than is left, and several chunks."""


class Disk:
    """A small file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take all space but a little."""
        found = os.statvfs(self.folder)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - LEFT_BYTES)

    def free(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "argosy-test", str(folder)], check=True)
    yield Disk(folder)
    subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def s3(folder: Path, disk: Disk) -> Iterator[Store]:
    require_s3_server()
    with running_s3(disk.folder) as running:
        yield open_store(f"s3://{BUCKET}/run", running.credentials)


@contextmanager
def oci(folder: Path, disk: Disk) -> Iterator[Store]:
    if PROGRAM is None:
        pytest.skip("docker-registry is not installed")
    with running_registry(folder, storage=disk.folder) as running:
        yield open_store(f"oci://{running.address}/team/run")


Serve = Callable[[Path, Disk], AbstractContextManager[Store]]


@pytest.mark.parametrize("serve", [s3, oci])
def test_full_store_says_so_and_gets_the_next_checkpoint_once_it_has_space(
    tmp_path: Path,
    disk: Disk,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(registry_connection, "_ATTEMPTS", 1000)  # none of them is made
    monkeypatch.setattr(cloud_bucket, "_RETRY", {"max_retries": 1, "retry_timeout": timedelta(seconds=60)})
    with serve(tmp_path, disk) as store:
        pod = Pod(tmp_path, store=store)
        pod.save(5)
        pod.watcher.look()
        disk.fill()
        for step in (6, 7):
            pod.save(step, content=noise(step, CONTENT_BYTES))
            pod.watcher.look(is_last=True)
        assert pod.acknowledged() == [5]
        errors = capsys.readouterr().err.splitlines()
        advice = f"delete checkpoints or enlarge the {'bucket' if serve is s3 else 'registry'}"
        assert [line.split(" (")[0] for line in errors] == [
            f"argosy: checkpoint of step {step} not stored: {store.uri}: no space left; {advice}"
            for step in (6, 7)
        ]
        found = store.scan()
        assert ([manifest.step for manifest in found.manifests], found.skipped) == ([5], ())
        assert store.verify(found.manifests[0]) == []
        kept = [checkpoint.step for checkpoint in CheckpointFolder(pod.folder).find()]
        assert kept == [7], "the pod's folder does not grow meanwhile"
        disk.free()
        pod.save(8, content=noise(8, CONTENT_BYTES))
        pod.watcher.look(is_last=True)
        assert pod.acknowledged() == [5, 8]
        newest = store.latest()
        assert newest is not None
        assert (newest.step, store.verify(newest)) == (8, [])
