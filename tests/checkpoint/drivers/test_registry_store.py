"""Checkpoints in a real OCI registry: what is damaged, what is not ours, and what the registry refuses."""

import hashlib
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from msgspec.structs import replace

from argosy.checkpoint.drivers import registry_store
from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.drivers.registry_connection import find_login
from argosy.checkpoint.drivers.registry_store import CHECKPOINT_TYPE, MAX_LAYERS, RegistryStore, _chunk_bytes
from argosy.checkpoint.drivers.uris import open_store
from argosy.checkpoint.manifest import Manifest, Part
from argosy.checkpoint.registry_login import DOCKER_CONFIG, Login, docker_config
from argosy.checkpoint.store import CorruptCheckpointError, StoreError
from tests.support.certificates import Authority
from tests.support.checkpoints import contents, make_checkpoint, noise
from tests.support.fake_clouds import running_fake
from tests.support.registry import PASSWORD, PROGRAM, USERNAME, RunningRegistry, running_registry

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")

FILES = {"rank-0.pt": noise(1, 50_000), "own": b"5"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def store(registry: RunningRegistry, tmp_path: Path) -> RegistryStore:
    found = open_store(f"oci://{registry.address}/{tmp_path.name.replace('_', '-')}")
    assert isinstance(found, RegistryStore)
    return found


@pytest.fixture
def manifests(tmp_path: Path, store: RegistryStore) -> list[Manifest]:
    """Checkpoints of two steps, which share a chunk; the file `own` is each one's own."""
    made = [make_checkpoint(tmp_path / "work", step, {**FILES, "own": b"%d" % step}) for step in (5, 6)]
    for folder, manifest in made:
        store.publish(folder, manifest)
    return [manifest for _, manifest in made]


def test_the_configuration_has_the_digest_of_the_checkpoint(
    registry: RunningRegistry, manifests: list[Manifest]
) -> None:
    assert {manifest.digest.removeprefix("sha256:") for manifest in manifests} <= {
        path.parent.name for path in registry.blobs
    }


@pytest.mark.parametrize("content", [b"7", b"", b"longer than it was"])
def test_a_damaged_chunk_makes_restoring_fall_back(
    tmp_path: Path, registry: RunningRegistry, store: RegistryStore, manifests: list[Manifest], content: bytes
) -> None:
    path = registry.blob(b"6")
    path.write_bytes(content)
    try:
        (problem,) = store.verify(manifests[1])
        found = store.restore_latest(tmp_path / "restored")
    finally:
        path.write_bytes(b"6")
    assert "own: " in problem
    assert found.manifest == manifests[0]
    assert [skipped.name for skipped in found.skipped] == [manifests[1].name]
    assert contents(tmp_path / "restored") == FILES


def test_tags_that_are_no_checkpoints_are_skipped(store: RegistryStore, manifests: list[Manifest]) -> None:
    connection = store._connection
    config = b'{"step": 9}'
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    connection.push_blob(config, digest)
    for tag, kind in (
        ("step-9-0123456789ab", CHECKPOINT_TYPE),
        ("step-8-0123456789ab", "text/plain"),
        ("latest", ""),
    ):
        descriptor = {"mediaType": kind, "digest": digest, "size": len(config)}
        body = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
        image = connection.repository.image(tag)
        content = msgspec.json.encode({**body, "config": descriptor, "layers": []})
        connection.call(partial(Registry.push_manifest, image=image, body=content))
    assert store.list() == manifests[::-1]
    reasons = {skipped.name: skipped.reason for skipped in store.scan().skipped}
    assert set(reasons) == {"step-9-0123456789ab", "step-8-0123456789ab"}
    assert "is not a checkpoint" in reasons["step-8-0123456789ab"]
    assert "missing required field" in reasons["step-9-0123456789ab"]


def test_pods_with_folders_of_their_own_make_one_checkpoint(tmp_path: Path, store: RegistryStore) -> None:
    saved = []
    for rank in range(2):
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "ARGOSY_CHECKPOINT_SHARED": "0"}
        files = {f"rank-{rank}.pt": noise(rank, 5000)}
        saved.append(store.publish(*make_checkpoint(tmp_path / f"pod-{rank}", 5, files, **variables)))
    assert [part.complete for part in saved] == [False, True]
    assert store.list() == [saved[1].manifest]
    store.restore(saved[1].manifest, tmp_path / "restored")
    assert contents(tmp_path / "restored") == {f"rank-{rank}.pt": noise(rank, 5000) for rank in range(2)}


def test_prune_deletes_images(store: RegistryStore, manifests: list[Manifest]) -> None:
    assert store.prune(1, [manifests[0].name]) == []
    assert store.prune(1) == [manifests[0].name]
    assert store.list() == [manifests[1]]
    assert store.verify(manifests[1]) == []


def test_parts_of_a_checkpoint_that_was_never_completed_are_deleted_later(
    tmp_path: Path, store: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "2", "ARGOSY_CHECKPOINT_SHARED": "0"}
    for step in (5, 6):
        made = make_checkpoint(tmp_path / "pod", step, {"rank-0.pt": b"%d" % step}, **variables)
        saved = store.publish(*made)
        assert not saved.complete
    store.publish(*make_checkpoint(tmp_path / "work", 7, FILES))

    def parts() -> list[str]:
        return list(store._tags(lambda tag: tag.startswith("parts-")))

    store.prune(1)
    assert len(parts()) == 2, "the other pod may be sending its part"
    monkeypatch.setattr(registry_store, "PART_AGE", timedelta(0))
    store.prune(1)
    assert parts() == []
    assert [manifest.step for manifest in store.list()] == [7]


def test_parts_are_kept_if_the_clock_of_the_newest_checkpoint_is_ahead(
    tmp_path: Path, store: RegistryStore
) -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "2", "ARGOSY_CHECKPOINT_SHARED": "0"}
    store.publish(*make_checkpoint(tmp_path / "pod", 6, {"rank-0.pt": b"6"}, **variables))
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    store.publish(folder, replace(manifest, created="2999-01-01T00:00:00+00:00"))
    store.prune(1)
    parts = store._tags(lambda tag: tag.startswith("parts-"))
    assert len(parts) == 1, "the other pod may be sending its part"


def test_registry_with_a_certificate_of_its_own_and_the_login_of_a_pull_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helper containers have a read-only root, so nothing of it may need a temporary file."""
    authority = Authority()
    certificate = authority.issue("registry", x509.IPAddress(ip_address("0.0.0.0")))
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with running_registry(tmp_path, login=True, certificate=certificate) as running:
        # Another address of this machine, because loopback is reached by plain HTTP.
        address = running.address.replace("127.0.0.1", "0.0.0.0")
        config = docker_config(Login(USERNAME, PASSWORD), address).decode()
        secret = {DOCKER_CONFIG: config, "ca.crt": authority.certificate.decode()}
        store = open_store(f"oci://{address}/team/a", secret)
        assert store.publish(folder, manifest).complete
        store.restore(manifest, tmp_path / "restored")
    assert contents(tmp_path / "restored") == FILES


def test_a_chunk_that_the_registry_lost_is_missed_and_pushed_again(
    tmp_path: Path, registry: RunningRegistry, store: RegistryStore, manifests: list[Manifest]
) -> None:
    """A registry may delete a chunk with the last image that has it, while an upload relies on it."""
    sha256 = manifests[1].parts[1].sha256
    name = store.uri.rpartition("/")[2]
    (link,) = (registry.folder / "storage").rglob(f"{name}/_layers/sha256/{sha256}/link")
    link.unlink()
    latest = store.find_latest()
    assert latest.manifest is None
    assert [skipped.reason for skipped in latest.skipped] == [f"chunk {sha256} is missing"] * 2
    folder, manifest = make_checkpoint(tmp_path / "work", 7, {**FILES, "own": b"7"})
    store.publish(folder, manifest)
    assert store.latest() == manifest
    assert store.verify(manifest) == []


def test_a_server_that_answers_html_is_an_error() -> None:
    with running_fake("gs") as fake:
        fake.refuse = 200
        store = open_store(f"oci://{fake.endpoint.removeprefix('http://')}/team/a")
        with pytest.raises(StoreError, match=r"oci://127\.0\.0\.1:.*tags of "):
            store.list()


def test_a_file_that_was_changed_is_not_pushed(tmp_path: Path, store: RegistryStore) -> None:
    folder, manifest = make_checkpoint(tmp_path / "work", 5, FILES)
    (folder / "own").write_bytes(b"6")
    with pytest.raises(CorruptCheckpointError):
        store.publish(folder, manifest)
    assert store.list() == []


BAD_URIS = {
    "oci://": "oci:",
    "oci://host:5000/UPPER": "UPPER",
    "oci://host:5000/a:tag": "must have no tag",
    "oci://team/a": "must be oci://REGISTRY/REPOSITORY",
}


@pytest.mark.parametrize(("uri", "problem"), BAD_URIS.items())
def test_a_uri_that_cannot_be_used(uri: str, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        open_store(uri)


DOCKER = '{"auths": {"https://host:5000": {"auth": "bWU6c2VjcmV0"}}}'


def test_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    want = Login("me", "secret")
    assert find_login("host:5000", {}) is None
    assert find_login("host:5000", {"username": "me", "password": "secret"}) == want
    assert find_login("host:5000", {".dockerconfigjson": DOCKER}) == want
    with pytest.raises(StoreError, match="credentials: it has no login for the registry other"):
        find_login("other", {".dockerconfigjson": DOCKER})
    (tmp_path / "config.json").write_text(DOCKER)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert find_login("host:5000", {}) == want
    assert find_login("other", {}) is None
    monkeypatch.setenv("REGISTRY_USERNAME", "you")
    assert find_login("other", {}) == Login("you", "")
    with pytest.raises(StoreError, match=r"credentials: key 'ca\.crt': no valid PEM certificate"):
        open_store("oci://host:5000/a", {"ca.crt": "yes"})


def test_large_checkpoints_have_longer_chunks() -> None:
    def chunk_bytes(size: int, *ranks: int) -> int:
        part = Part("a", 0, size, "0" * 64)
        return _chunk_bytes(Manifest(step=1, world=1 + len(ranks), parts=(part,), ranks=ranks))

    mebibyte = 2**20
    assert chunk_bytes(10 * mebibyte) == 4 * mebibyte
    assert chunk_bytes(4 * mebibyte * MAX_LAYERS) == 8 * mebibyte
    assert chunk_bytes(2**50) == 64 * mebibyte
    assert chunk_bytes(2**50, 0) == 4 * mebibyte, "all pods have the same"


def test_image_with_too_many_layers_is_refused(
    tmp_path: Path, store: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_store, "MAX_LAYERS", 2)
    files = {name: name.encode() for name in "abc"}
    with pytest.raises(StoreError, match=r"step-5-.*: 3 chunks; must be at most 2.*; use a bucket"):
        store.publish(*make_checkpoint(tmp_path / "work", 5, files))
    assert store.list() == []
