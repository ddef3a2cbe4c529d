"""Images from tars: pushed to a real registry, and written as OCI archives."""

import gzip
import hashlib
import json
import tarfile
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from argosy.checkpoint.drivers.image_files import push_image, read_layer, write_archive
from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.image_names import parse_image
from argosy.checkpoint.images import Source, build_image
from tests.support.registry import PROGRAM, running_registry

SOURCE = Source(container="main", base_image="base:1", pod="p", namespace="n", engine="containerd")
AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")
async def test_large_tar_is_pushed_without_being_held_in_memory(tmp_path: Path) -> None:
    tar, size = tmp_path / "checkpoint.tar", 32 << 20
    with tar.open("wb") as file:
        file.truncate(size)
    with running_registry(tmp_path) as server:
        image = parse_image(f"{server.address}/team/large:main-1")
        async with Registry(server.address) as registry:
            tracemalloc.start()
            try:
                built = build_image(await read_layer(tar), SOURCE, AT, "amd64")
                pushed = await push_image(registry, image, built, tar)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert peak < size
            manifest = await registry.get_manifest(image)
        assert manifest.digest == pushed == built.digest
        assert [layer.size for layer in manifest.content.layers] == [size]
        assert size in [path.stat().st_size for path in server.blobs]


@pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")
async def test_image_that_was_pushed_before_is_not_sent_again(tmp_path: Path) -> None:
    tar = tmp_path / "checkpoint.tar"
    tar.write_bytes(b"dump" * 1000)
    with running_registry(tmp_path) as server:
        image = parse_image(f"{server.address}/team/again:main-1")
        async with Registry(server.address) as registry:
            built = build_image(await read_layer(tar), SOURCE, AT, "amd64")
            await push_image(registry, image, built, tar)
            tar.unlink()
            assert await push_image(registry, image, built, tar) == built.digest


async def test_compressed_tar_has_the_digest_of_its_content_as_diff_id(tmp_path: Path) -> None:
    content = b"dump" * 100_000
    (tmp_path / "checkpoint.tar").write_bytes(gzip.compress(content))
    layer = await read_layer(tmp_path / "checkpoint.tar")
    assert layer.media_type.endswith("+gzip")
    assert layer.diff_id == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert layer.diff_id != layer.digest


@pytest.mark.parametrize(
    "content",
    {"no file": None, "zstd": b"\x28\xb5\x2f\xfd0000", "truncated gzip": b"\x1f\x8bxxxx"}.values(),
    ids=["no file", "zstd", "invalid gzip"],
)
async def test_tar_that_cannot_be_used_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "checkpoint.tar").write_bytes(content)
    with pytest.raises(RegistryError) as raised:
        await read_layer(tmp_path / "checkpoint.tar")
    assert raised.value.code == "InvalidFile"


async def test_archive_is_an_oci_layout_with_the_layer(tmp_path: Path) -> None:
    tar = tmp_path / "checkpoint.tar"
    tar.write_bytes(b"dump" * 1000)
    built = build_image(await read_layer(tar), SOURCE, AT, "amd64")
    image = parse_image("localhost/checkpoint-p-main:20260301-000000")
    await write_archive(tmp_path / "images" / "archive.tar", image, built, tar)
    with tarfile.open(tmp_path / "images" / "archive.tar") as archive:
        contents = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        read = {name: file.read() for name, file in contents.items() if file is not None}
    for name, data in read.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    [entry] = json.loads(read["index.json"])["manifests"]
    assert entry["digest"] == built.digest
    assert entry["annotations"]["io.containerd.image.name"] == str(image)
    assert tar.read_bytes() in read.values()
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["archive.tar"]
