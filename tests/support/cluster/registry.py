"""A read-only image registry with only the images of a cluster.

The nodes have the images already, but a pod may require a pull (`imagePullPolicy: Always`, the default of the
tag `latest`). For all other names the registry responds at once that the image does not exist. It serves the
archives themselves, and reads them again when they change.

Run as `python -m tests.support.cluster.registry ADDRESS PORT ARCHIVE…`.
"""

import json
import sys
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

PORT: Final = 5000
_CHUNK: Final = 1 << 20


class Blob(Struct, frozen=True):
    path: Path
    offset: int
    size: int
    kind: str = "application/octet-stream"


class Contents(Struct, frozen=True):
    names: Mapping[str, str]
    """The digest of the manifest of each image."""
    blobs: Mapping[str, Blob]


def read_archive(path: Path) -> Contents:
    """The images of an archive, and their offsets in the file; the archive may not exist yet."""
    return _read_archive(path, path.stat().st_mtime_ns) if path.exists() else Contents({}, {})


def find(archives: list[Path], host: str, place: str) -> tuple[str, Blob] | None:
    """The digest and the blob of a path below /v2/, for images of that host."""
    repository, _, rest = (
        place.rpartition("/manifests/") if "/manifests/" in place else place.rpartition("/blobs/")
    )
    for archive in archives:
        contents = read_archive(archive)
        digest = rest if ":" in rest else contents.names.get(f"{host}/{repository}:{rest}", "")
        if digest in contents.blobs:
            return digest, contents.blobs[digest]
    return None


def serve(address: str, port: int, archives: list[Path]) -> ThreadingHTTPServer:
    """Create a server for these archives; the caller runs it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            url = urlsplit(self.path)
            host = parse_qs(url.query).get("ns", [""])[0]
            match = find(archives, host, url.path.removeprefix("/v2/"))
            if match is None:
                self._send(404, b'{"errors":[{"code":"NAME_UNKNOWN","message":"no such image here"}]}')
                return
            digest, blob = match
            self.send_response(200)
            self.send_header("Content-Type", blob.kind)
            self.send_header("Content-Length", str(blob.size))
            self.send_header("Docker-Content-Digest", digest)
            self.end_headers()
            if body:
                with blob.path.open("rb") as file:
                    _copy(file, blob, self.wfile)

        def _send(self, code: int, content: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    return ThreadingHTTPServer((address, port), Handler)


@lru_cache(maxsize=16)
def _read_archive(path: Path, _changed: int) -> Contents:
    with tarfile.open(path) as archive:
        blobs = {
            member.name.removeprefix("blobs/").replace("/", ":"): Blob(path, member.offset_data, member.size)
            for member in archive
            if member.name.startswith("blobs/")
        }
        index = archive.extractfile("index.json")
        assert index is not None
        entries = json.load(index)["manifests"]
    names = {entry["annotations"]["io.containerd.image.name"]: entry["digest"] for entry in entries}
    for entry in entries:
        old = blobs[entry["digest"]]
        blobs[entry["digest"]] = Blob(path, old.offset, old.size, entry["mediaType"])
    return Contents(names, blobs)


def _copy(file: BinaryIO, blob: Blob, to: BufferedIOBase) -> None:
    file.seek(blob.offset)
    left = blob.size
    while left > 0 and (chunk := file.read(min(_CHUNK, left))):
        to.write(chunk)
        left -= len(chunk)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), [Path(word) for word in sys.argv[3:]]).serve_forever()
