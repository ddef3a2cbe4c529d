"""Tests for images that are checkpoints: which are fetched, and what happens if that fails."""

import datetime
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from argosy.checkpoint.drivers.image_files import push_image, read_layer
from argosy.checkpoint.drivers.registry import Registry, digest_of
from argosy.checkpoint.image_names import Image, parse_image
from argosy.checkpoint.images import Source, build_image
from argosy.checkpoint.registry_login import Login
from argosy.kinds.labels import RESTORED_CONTAINERS
from argosy.kinds.meta import ObjectMeta
from argosy.local.node.checkpoint_files import METADATA, Metadata
from argosy.local.node.checkpoint_images import CheckpointImages, ImageError
from argosy.local.node.pod_types import Container, NameRef, Pod, PodSpec, Secret
from argosy.local.node.settings import Settings
from tests.support.registry import PASSWORD, PROGRAM, USERNAME, RunningRegistry, running_registry
from tests.support.servers import free_port

needs_registry = pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def write_metadata(folder: Path) -> None:
    fields: dict[str, object] = dict.fromkeys(Metadata.__annotations__, "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / METADATA).write_bytes(msgspec.json.encode(fields | {"version": 1, "image": "base"}))


async def sources(
    tmp_path: Path, image: str, secret: Secret | None = None, restored: str = "", **images: str
) -> dict[str, str]:
    """Return the base image of each container that is restored, for a pod with this image and secret."""
    containers = [Container(name="main", image=image), Container(name="plain", image="busybox")]
    spec = PodSpec(containers=containers, image_pull_secrets=[NameRef("login")] if secret else [])
    annotations = {RESTORED_CONTAINERS: restored} if restored else {}
    pod = Pod(ObjectMeta(name="a", namespace="default", uid="u-1", annotations=annotations), spec)

    def find_secret(namespace: str, name: str) -> Secret | None:
        return secret if (namespace, name) == ("default", "login") else None

    finder = CheckpointImages(Settings(tmp_path, images=images), None, find_secret)
    found = await finder.sources(pod, tmp_path / "pod")
    assert all((source.folder / METADATA).exists() for source in found.values())
    return {name: source.image for name, source in found.items()}


async def test_a_folder_with_an_unpacked_checkpoint_is_restored_from(tmp_path: Path) -> None:
    write_metadata(tmp_path / "unpacked")
    assert await sources(tmp_path, "ckpt:1", ckpt=str(tmp_path / "unpacked")) == {"main": "base"}
    assert await sources(tmp_path, "ckpt:1", ckpt=str(tmp_path)) == {}


@pytest.mark.parametrize("image", ["python:3", "localhost/a/b:1", "registry.invalid/a:1", "not an.image/x"])
async def test_images_that_are_not_on_this_machine_and_not_reached_are_no_checkpoints(
    image: str, tmp_path: Path
) -> None:
    assert await sources(tmp_path, image) == {}


async def test_a_registry_on_this_machine_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="failed to pull image"):
        await sources(tmp_path, f"127.0.0.1:{free_port()}/a/b:1")


@pytest.mark.parametrize("image", ["python:3", "localhost/a/b:1", "registry.invalid/a:1", "not an.image/x"])
async def test_a_restored_container_is_not_started_from_anything_but_a_checkpoint(
    image: str, tmp_path: Path
) -> None:
    with pytest.raises(ImageError, match=r"failed to pull image|is no checkpoint"):
        await sources(tmp_path, image, restored="other,main")
    assert await sources(tmp_path, image, restored="other") == {}


async def push(
    registry: RunningRegistry, tmp_path: Path, name: str, *, metadata: bool, login: Login | None = None
) -> Image:
    """Push a checkpoint, of a local control plane or of another runtime."""
    folder = tmp_path / "files"
    (folder / "checkpoint").mkdir(parents=True)
    if metadata:
        write_metadata(folder)
    tar = tmp_path / "checkpoint.tar"
    with tarfile.open(tar, "w") as archive:
        archive.add(folder, ".")
    image = parse_image(f"{registry.address}/{name}")
    source = Source(container="main", base_image="base", pod="a", namespace="default", engine="argosy")
    built = build_image(await read_layer(tar), source, datetime.datetime.now(datetime.UTC), "amd64")
    async with Registry(registry.address, login) as client:
        await push_image(client, image, built, tar)
    return image


@needs_registry
async def test_a_checkpoint_is_fetched_and_unpacked(registry: RunningRegistry, tmp_path: Path) -> None:
    image = await push(registry, tmp_path, "trainings/a:main-1", metadata=True)
    assert await sources(tmp_path, str(image)) == {"main": "base"}
    kept = [path.name for path in (tmp_path / "pod" / "restore").iterdir()]
    assert kept == ["main"], "neither the archive nor anything unfinished"


@needs_registry
async def test_a_checkpoint_of_another_runtime_is_refused(registry: RunningRegistry, tmp_path: Path) -> None:
    image = await push(registry, tmp_path, "trainings/b:main-1", metadata=False)
    with pytest.raises(ImageError, match="another container runtime"):
        await sources(tmp_path, str(image))


@needs_registry
async def test_a_checkpoint_behind_a_login_needs_the_secret_of_its_pod(tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    with running_registry(tmp_path / "registry", login=True) as private:
        login = Login(USERNAME, PASSWORD)
        image = await push(private, tmp_path, "trainings/c:main-1", metadata=True, login=login)
        with pytest.raises(ImageError, match="failed to pull image"):
            await sources(tmp_path, str(image))
        config = {"auths": {private.address: {"username": USERNAME, "password": PASSWORD}}}
        data = {".dockerconfigjson": msgspec.json.encode(config)}
        secret = Secret(ObjectMeta(name="login", namespace="default"), data)
        assert await sources(tmp_path, str(image), secret) == {"main": "base"}


@needs_registry
async def test_any_other_image_is_not_fetched(registry: RunningRegistry, tmp_path: Path) -> None:
    image, config = parse_image(f"{registry.address}/plain:1"), b"{}"
    descriptor = {
        "mediaType": "application/vnd.oci.image.config.v1+json",
        "digest": digest_of(config),
        "size": 2,
    }
    manifest = {"schemaVersion": 2, "config": descriptor, "layers": []}
    async with Registry(registry.address) as client:
        await client.push_blob(image.repository, config, digest_of(config))
        await client.push_manifest(image, msgspec.json.encode(manifest))
    assert await sources(tmp_path, str(image)) == {}
    assert not (tmp_path / "pod").exists()
    with pytest.raises(ImageError, match="is no checkpoint; it must be one"):
        await sources(tmp_path, str(image), restored="main")
