"""The registry client against a real registry, with and without login."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from argosy.checkpoint.drivers.registry import CHUNK_BYTES, Registry
from argosy.checkpoint.drivers.registry_auth import parse_challenge
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.image_names import Image, parse_image, parse_repository
from argosy.checkpoint.images import MANIFEST_TYPE
from argosy.checkpoint.registry_login import Login
from tests.support.files import file_names
from tests.support.registry import PASSWORD, PROGRAM, USERNAME, RunningRegistry, running_registry

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("open")) as running:
        yield running


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("private"), login=True) as running:
        yield running


@pytest.fixture
async def registry(server: RunningRegistry) -> AsyncIterator[Registry]:
    async with Registry(server.address) as client:
        yield client


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def push(registry: Registry, image: Image, content: bytes = b"{}") -> str:
    """Push the smallest image: a manifest without layers."""
    await registry.push_blob(image.repository, content, digest(content))
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(content)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": []}
    body = msgspec.json.encode({**manifest, "config": {**config, "size": len(content)}})
    return await registry.push_manifest(image, body)


async def test_pushed_image_is_found_by_tag_and_digest(server: RunningRegistry, registry: Registry) -> None:
    image = parse_image(f"{server.address}/team/found:main-1")
    assert await registry.head_manifest(image) is None
    pushed = await push(registry, image)
    assert await registry.head_manifest(image) == pushed
    by_digest = await registry.get_manifest(image.repository.image(pushed))
    assert (by_digest.digest, by_digest.media_type) == (pushed, MANIFEST_TYPE)


async def test_tags_of_several_pages(
    server: RunningRegistry, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = parse_repository(f"{server.address}/team/paged")
    want = {f"main-{number}" for number in range(7)}
    for tag in want:
        await push(registry, repository.image(tag))
    monkeypatch.setattr("argosy.checkpoint.drivers.registry.PAGE_TAGS", 3)
    assert set(await registry.tags(repository)) == want


async def test_tags_of_an_unknown_repository_are_not_found(
    server: RunningRegistry, registry: Registry
) -> None:
    with pytest.raises(RegistryError, match="NAME_UNKNOWN") as raised:
        await registry.tags(parse_repository(f"{server.address}/team/unknown"))
    assert raised.value.code == "NotFound"


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 17])
async def test_file_of_any_size_is_pushed_and_downloaded(
    server: RunningRegistry, registry: Registry, tmp_path: Path, size: int
) -> None:
    repository = parse_repository(f"{server.address}/team/files")
    source, target = tmp_path / "source", tmp_path / "target"
    content = (b"%08d" % size) * (size // 8 + 1)
    source.write_bytes(content[:size])
    wanted = digest(source.read_bytes())
    await registry.push_blob(repository, source, wanted)
    assert await registry.has_blob(repository, wanted)
    await registry.get_blob(repository, wanted, target, max_bytes=size)
    assert target.read_bytes() == source.read_bytes()
    assert file_names(tmp_path) == {"source", "target"}


async def test_blob_with_another_digest_is_not_stored(
    server: RunningRegistry, registry: Registry, tmp_path: Path
) -> None:
    repository = parse_repository(f"{server.address}/team/wrong")
    (tmp_path / "source").write_bytes(b"content")
    with pytest.raises(RegistryError, match="DIGEST_INVALID"):
        await registry.push_blob(repository, tmp_path / "source", digest(b"other"))
    assert not await registry.has_blob(repository, digest(b"other"))


async def test_manifest_without_its_blobs_is_rejected(server: RunningRegistry, registry: Registry) -> None:
    body = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": "x/y", "digest": digest(b"absent"), "size": 6},
            "layers": [],
        }
    )
    with pytest.raises(RegistryError) as raised:
        await registry.push_manifest(parse_image(f"{server.address}/team/empty:1"), body)
    assert raised.value.code == "Rejected"
    assert not raised.value.is_temporary


async def test_deleted_image_is_gone(server: RunningRegistry, registry: Registry) -> None:
    image = parse_image(f"{server.address}/team/deleted:main-1")
    await push(registry, image)
    assert await registry.delete_manifest(image)
    assert await registry.head_manifest(image) is None
    assert not await registry.delete_manifest(image)


async def test_requests_at_the_same_time_share_a_login(private: RunningRegistry) -> None:
    repository = parse_repository(f"{private.address}/team/at-once")
    async with Registry(private.address, Login(USERNAME, PASSWORD)) as registry:
        contents = [b"%d" % number for number in range(8)]
        await asyncio.gather(
            *(registry.push_blob(repository, content, digest(content)) for content in contents)
        )
        assert await registry.has_blob(repository, digest(contents[7]))


async def test_private_registry_accepts_the_right_login_only(private: RunningRegistry) -> None:
    image = parse_image(f"{private.address}/team/secret:main-1")
    async with Registry(private.address, Login(USERNAME, PASSWORD)) as registry:
        await registry.ping()
        pushed = await push(registry, image)
        assert await registry.head_manifest(image) == pushed
    for login in (None, Login(USERNAME, "guessed")):
        async with Registry(private.address, login) as registry:
            for request in (registry.ping(), registry.head_manifest(image), push(registry, image)):
                with pytest.raises(RegistryError) as raised:
                    await request
                assert raised.value.code == "Unauthorized"
                assert "guessed" not in str(raised.value)


def test_challenges_with_several_schemes() -> None:
    header = (
        'Bearer realm="https://auth.io/token",service="r.io",scope="repository:a:pull,push", Basic realm=x'
    )
    assert parse_challenge(header) == {
        "bearer": {
            "realm": "https://auth.io/token",
            "service": "r.io",
            "scope": "repository:a:pull,push",
        },
        "basic": {"realm": "x"},
    }
