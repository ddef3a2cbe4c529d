"""All kinds of stores do the same: a folder, a real S3 server, a real registry, fakes of GCS and Azure."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from argosy.checkpoint.chunks import CHUNK_BYTES
from argosy.checkpoint.drivers.object_store import ObjectStore
from argosy.checkpoint.drivers.uris import open_bucket, open_store
from argosy.checkpoint.store import Store, StoreError
from tests.support import fake_clouds, s3_server
from tests.support.checkpoints import contents, make_checkpoint, noise
from tests.support.fake_clouds import FakeCloud, running_fake
from tests.support.registry import PASSWORD, PROGRAM, USERNAME, RunningRegistry, running_registry
from tests.support.s3_server import RunningS3, require_s3_server, running_s3

FILES = {"rank-0.pt": noise(1, CHUNK_BYTES + 1000), "model/weights.bin": b"zero" * 50_000, "empty": b""}
KINDS = ("file", "s3", "gs", "az", "oci")


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningS3]:
    require_s3_server()
    with running_s3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    if PROGRAM is None:
        pytest.skip("docker-registry is not installed")
    with running_registry(tmp_path_factory.mktemp("registry"), login=True) as running:
        yield running


class Place:
    """A URI and its credentials."""

    def __init__(self, uri: str, credentials: dict[str, str]) -> None:
        self.uri = uri
        self.credentials = credentials

    def open(self) -> Store:
        return open_store(self.uri, self.credentials)

    def open_later(self) -> Store:
        """Open it with a clock that is two hours ahead, if it has one."""
        if self.uri.startswith("oci://"):
            return self.open()
        ahead = timedelta(hours=2)
        return ObjectStore(open_bucket(self.uri, self.credentials), now=lambda: datetime.now(UTC) + ahead)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        prefix = f"team/{tmp_path.name}"
        match request.param:
            case "file":
                yield Place(f"file://{tmp_path}/store", {})
            case "s3":
                running: RunningS3 = request.getfixturevalue("s3")
                yield Place(f"s3://{s3_server.BUCKET}/{prefix}", dict(running.credentials))
            case "oci":
                registry: RunningRegistry = request.getfixturevalue("registry")
                name = tmp_path.name.replace("_", "-")
                yield Place(f"oci://{registry.address}/{name}", {"username": USERNAME, "password": PASSWORD})
            case scheme:
                fake = stack.enter_context(running_fake(scheme))
                yield Place(f"{scheme}://{fake_clouds.BUCKET}/{prefix}", dict(fake.credentials))


def test_checkpoints_are_stored_listed_restored_and_pruned(tmp_path: Path, place: Place) -> None:
    store = place.open()
    assert store.list() == []
    assert store.latest() is None
    manifests = []
    for step in (5, 6):
        files = {**FILES, "model/own": noise(step, 3000)}
        folder, manifest = make_checkpoint(tmp_path / "work", step, files)
        saved = store.publish(folder, manifest)
        assert saved.uploaded > CHUNK_BYTES if step == 5 else saved.uploaded == 3000
        manifests.append(manifest)
    again = place.open()
    assert again.list() == manifests[::-1]
    assert again.latest() == manifests[1]
    assert again.verify(manifests[0]) == []
    again.restore(manifests[0], tmp_path / "restored")
    assert contents(tmp_path / "restored") == {**FILES, "model/own": noise(5, 3000)}
    assert place.open_later().prune(1) == [manifests[0].name]
    assert again.list() == [manifests[1]]
    assert again.verify(manifests[1]) == []
    assert "is missing" in "".join(again.verify(manifests[0])) or again.verify(manifests[0])


def test_a_bucket_that_does_not_exist_is_an_error(tmp_path: Path, s3: RunningS3) -> None:
    store = open_store("s3://nowhere/a", s3.credentials)
    with pytest.raises(StoreError, match="s3://nowhere/a"):
        store.publish(*make_checkpoint(tmp_path, 5, FILES))


def test_wrong_credentials_are_an_error(s3: RunningS3) -> None:
    store = open_store("s3://checkpoints/a", {**s3.credentials, "AWS_SECRET_ACCESS_KEY": "wrong"})
    with pytest.raises(StoreError, match=r"s3://checkpoints/a.*(denied|SignatureDoesNotMatch)") as raised:
        store.list()
    assert "\n" not in str(raised.value)
    assert "wrong" not in str(raised.value)


@pytest.fixture(params=["gs", "az"])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeCloud]:
    with running_fake(request.param) as running:
        yield running


def test_a_proxy_that_answers_html_is_an_error(fake: FakeCloud) -> None:
    store = open_store(f"{fake.scheme}://{fake_clouds.BUCKET}/a", fake.credentials)
    fake.refuse = 403
    with pytest.raises(StoreError, match=f"{fake.scheme}://checkpoints/a: access denied; check"):
        store.list()
    fake.refuse = 418
    with pytest.raises(StoreError, match=f"{fake.scheme}://checkpoints/a"):
        store.list()


def test_requests_carry_the_credentials(fake: FakeCloud) -> None:
    open_store(f"{fake.scheme}://{fake_clouds.BUCKET}/a", fake.credentials).list()
    assert fake.authorizations == {"Bearer" if fake.scheme == "gs" else "SharedKey"}


BAD_SETTINGS = {
    "a name that no provider knows": (
        "s3://b/a",
        {"AWS_COLOUR": "red"},
        "unknown setting in the credentials",
    ),
    "half of a key pair": ("s3://b/a", {"AWS_ACCESS_KEY_ID": "a"}, "Missing SecretAccessKey"),
    "no account": ("az://b/a", {}, "Account must be specified"),
    "a key file that is no JSON": ("gs://b/a", {"GOOGLE_SERVICE_ACCOUNT_KEY": "secret!"}, "Unable to decode"),
    "no bucket": ("s3:///a", {}, "invalid bucket ''; must be s3://bucket/prefix"),
    "a password in the URI": ("s3://me:secret@b/a", {}, "must have no user, password"),
}


@pytest.mark.parametrize(("uri", "credentials", "problem"), BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_settings_that_cannot_be_used(uri: str, credentials: dict[str, str], problem: str) -> None:
    with pytest.raises(StoreError, match=problem) as raised:
        open_store(uri, credentials)
    assert "secret" not in str(raised.value)
