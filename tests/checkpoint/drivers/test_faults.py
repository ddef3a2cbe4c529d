"""Uploads that are killed and disks that are full: what is listed stays complete."""

import os
import random
import resource
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from argosy.checkpoint.chunks import CHUNK_BYTES
from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.store import StoreError
from argosy_sdk.session import Session
from tests.support.checkpoints import contents, make_checkpoint, noise
from tests.support.commands import REPOSITORY
from tests.support.registry import PROGRAM, RunningRegistry, running_registry
from tests.support.s3_server import BUCKET, RunningS3, require_s3_server, running_s3

CHUNKS = 12
FIRST = {"rank-0.pt": noise(1, CHUNKS * 1000)}
SECOND = {f"rank-{rank}.pt": noise(10 + rank, 1000) for rank in range(CHUNKS)}

UPLOAD = """
import sys
from pathlib import Path
from argosy.checkpoint.drivers import folder_bucket, cloud_bucket, registry_connection
from argosy.checkpoint.drivers.folder_manifest import read_manifest
from argosy.checkpoint.drivers.uris import open_store

for kind in (folder_bucket.FolderBucket, cloud_bucket.CloudBucket):
    def put(self, key, content, store=kind.put):
        print(key, flush=True)
        store(self, key, content)
    kind.put = put
push = registry_connection.RegistryConnection.push_blob
def push_blob(self, content, digest):
    print(digest, flush=True)
    push(self, content, digest)
registry_connection.RegistryConnection.push_blob = push_blob
folder = Path(sys.argv[2])
open_store(sys.argv[1]).publish(folder, read_manifest(folder))
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningS3]:
    require_s3_server()
    with running_s3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    if PROGRAM is None:
        pytest.skip("docker-registry is not installed")
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def kill_upload(uri: str, folder: Path, credentials: Mapping[str, str], puts: int) -> None:
    """Kill an upload when it has begun to store so many objects; it may end before."""
    command = [sys.executable, "-c", UPLOAD, uri, str(folder)]
    environment = {**os.environ, **credentials}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE) as upload:
        assert upload.stdout is not None
        for number, line in enumerate(upload.stdout, 1):
            if number == puts or line == b"done\n":
                upload.kill()
                break
    assert upload.returncode in (0, -signal.SIGKILL)


PUTS = CHUNKS + 3
"""Objects of the second upload: an announcement, its chunks, the index and the manifest."""
MOMENTS = [
    pytest.param(random.Random(7).randrange(1, PUTS)),
    pytest.param(PUTS),
    *(pytest.param(puts, marks=pytest.mark.long) for puts in range(1, PUTS + 1)),
]


@pytest.mark.parametrize("puts", MOMENTS)
@pytest.mark.parametrize("kind", ["file", "s3", "oci"])
def test_a_killed_upload_leaves_only_complete_checkpoints(
    tmp_path: Path, kind: str, puts: int, request: pytest.FixtureRequest
) -> None:
    uri, credentials = f"file://{tmp_path}/store", {}
    if kind == "s3":
        running: RunningS3 = request.getfixturevalue("s3")
        uri, credentials = f"s3://{BUCKET}/{tmp_path.name}-{puts}", dict(running.credentials)
    if kind == "oci":
        registry: RunningRegistry = request.getfixturevalue("registry")
        uri = f"oci://{registry.address}/team/killed-{secrets.token_hex(4)}"
    store = open_store(uri, credentials)
    _, first = make_checkpoint(tmp_path / "work", 5, FIRST)
    folder, second = make_checkpoint(tmp_path / "work", 6, SECOND)
    store.publish(tmp_path / "work" / "step-5", first)
    kill_upload(uri, folder, credentials, puts)
    listed = store.list()
    assert listed in ([first], [second, first])
    assert [store.verify(manifest) for manifest in listed] == [[]] * len(listed)
    assert store.latest() == listed[0]
    store.publish(folder, second)
    store.restore(second, tmp_path / "restored")
    assert contents(tmp_path / "restored") == SECOND


def limited(size: int) -> Callable[[], None]:
    """Return what forbids a process to write files longer than this."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


PUBLISH = """
import sys
from pathlib import Path
from argosy.checkpoint.drivers.folder_manifest import read_manifest
from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.store import StoreError
folder = Path(sys.argv[2])
try:
    open_store(sys.argv[1]).publish(folder, read_manifest(folder))
except StoreError as error:
    print(error)
"""


def test_a_store_without_space_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/store"
    store = open_store(uri)
    _, first = make_checkpoint(tmp_path / "work", 5, FIRST)
    folder, second = make_checkpoint(tmp_path / "work", 6, {"big": noise(3, CHUNK_BYTES)})
    store.publish(tmp_path / "work" / "step-5", first)
    command = [sys.executable, "-c", PUBLISH, uri, str(folder)]
    ran = subprocess.run(
        command, cwd=REPOSITORY, preexec_fn=limited(100_000), capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{uri}: no space left; delete checkpoints or enlarge the volume\n"
    assert store.list() == [first]
    store.publish(folder, second)
    assert store.verify(second) == []


SAVE = """
from argosy_sdk import CheckpointError, saving
try:
    with saving(6) as folder:
        (folder / "model").write_bytes(bytes(1_000_000))
except CheckpointError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_last_checkpoint_of_a_training(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "work", 5, FIRST)
    ran = subprocess.run(
        [sys.executable, "-c", SAVE],
        cwd=REPOSITORY,
        env={**os.environ, "ARGOSY_CHECKPOINT_DIR": str(tmp_path / "work")},
        preexec_fn=limited(100_000),
        capture_output=True,
        text=True,
        check=True,
    )
    want = f"{tmp_path / 'work'}: no space left for step 6; earlier checkpoints are complete\n"
    assert ran.stdout == want
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["step-5"]
    assert Session({"ARGOSY_CHECKPOINT_DIR": str(tmp_path / "work")}).latest() == tmp_path / "work" / "step-5"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of six mebibytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "argosy-test", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_full_file_system_is_told_by_store_restore_and_sdk(tmp_path: Path, small_disk: Path) -> None:
    files = {f"rank-{rank}.pt": noise(rank, 2_000_000) for rank in range(4)}
    folder, manifest = make_checkpoint(tmp_path / "work", 5, files)
    with pytest.raises(StoreError, match="no space left"):
        open_store(f"file://{small_disk}/store").publish(folder, manifest)
    assert open_store(f"file://{small_disk}/store").list() == []
    other = open_store(f"file://{tmp_path}/store")
    other.publish(folder, manifest)
    with pytest.raises(StoreError, match="no space left to restore"):
        other.restore(manifest, small_disk / "restored")
    assert not (small_disk / "restored").exists()
