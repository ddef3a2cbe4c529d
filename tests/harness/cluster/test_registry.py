"""Tests for the image registry of a cluster."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import images, registry
from tests.support.cluster.images import LayerWriter

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    _write(tmp_path / "image.tar", b"first")
    return tmp_path / "image.tar"


@pytest.fixture
def port(archive: Path) -> Iterator[int]:
    with registry.serve("127.0.0.1", 0, [archive, archive.with_name("not-yet.tar")]) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def test_manifest_and_layers_of_an_image_can_be_pulled(port: int) -> None:
    code, headers, body = _get(port, "/v2/library/local/manifests/latest?ns=docker.io")
    assert (code, headers["Content-Type"]) == (200, MANIFEST)
    manifest = json.loads(body)
    layer = manifest["layers"][0]
    code, headers, body = _get(port, f"/v2/library/local/blobs/{layer['digest']}?ns=docker.io")
    assert (code, len(body)) == (200, layer["size"])
    code, headers, body = _get(port, "/v2/library/local/manifests/latest?ns=docker.io", "HEAD")
    assert (code, body) == (200, b"")
    again = _get(port, f"/v2/library/local/manifests/{headers['Docker-Content-Digest']}?ns=docker.io")
    assert json.loads(again[2]) == manifest


@pytest.mark.parametrize(
    "place",
    {
        "another image": "/v2/library/other/manifests/latest?ns=docker.io",
        "another tag": "/v2/library/local/manifests/1?ns=docker.io",
        "the same name on another host": "/v2/library/local/manifests/latest?ns=example.com",
        "no name at all": "/v2/",
    }.values(),
)
def test_unknown_image_is_not_found(port: int, place: str) -> None:
    assert _get(port, place)[0] == 404


def test_replaced_archive_is_served(port: int, archive: Path) -> None:
    place = "/v2/library/local/manifests/latest?ns=docker.io"
    before = _get(port, place)[2]
    _write(archive, b"second")
    assert _get(port, place)[2] != before


def _write(path: Path, content: bytes) -> None:
    writer = LayerWriter(path.with_name("layer.tar"))
    writer.content("/file", content)
    images.write_archive(path, ("docker.io/library/local:latest",), (writer.done(),), config={})


def _get(port: int, place: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, place)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()
