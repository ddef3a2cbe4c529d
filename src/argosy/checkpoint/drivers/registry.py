"""A client of an OCI registry: manifests, tags and blobs.

Blobs are sent and received in pieces, so that their size does not matter, and every digest is verified.
Whatever a registry answers, the outcome is a result or a RegistryError.
"""

import asyncio
import functools
import hashlib
import ipaddress
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from argosy.checkpoint.drivers.registry_auth import Authorizer
from argosy.checkpoint.drivers.registry_http import (
    MAX_REDIRECTS,
    REDIRECTS,
    UPLOAD_SECONDS,
    RegistryError,
    RegistryHttp,
    check_status,
    next_chunk,
)
from argosy.checkpoint.image_names import DOCKER_HUB, Image, Repository, is_digest, registry_host
from argosy.checkpoint.registry_login import Login
from argosy.wire.client import Response, StreamedResponse

CHUNK_BYTES = 8 << 20
PAGE_TAGS = 1000
MAX_PAGES = 1000
"""Pages of a list of tags."""
MAX_TAGS = 100_000

MANIFEST_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
T = TypeVar("T")
OCTETS = {"Content-Type": "application/octet-stream"}


class Descriptor(Struct, frozen=True, rename="camel"):
    """A blob that a manifest refers to."""

    media_type: str
    digest: str
    size: int


class Content(Struct, frozen=True):
    """What a manifest of an image says; an index of several images has neither layers nor configuration."""

    annotations: Mapping[str, str] | None = None
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = ()


class Manifest(Struct, frozen=True):
    """A manifest as the registry has it."""

    digest: str
    media_type: str
    body: bytes
    content: Content


class _Tags(Struct):
    tags: list[str] | None = None


class Registry:
    """A client of one registry with one login."""

    def __init__(
        self,
        url: str,
        login: Login | None = None,
        *,
        authority: bytes | None = None,
        plain_http: bool = False,
    ) -> None:
        """Connect to the registry at this host or URL.

        TLS is used and verified, against the certificate authorities of the system or those in `authority`.
        Loopback addresses are reached by plain HTTP unless the URL begins with `https://`, others only with
        `plain_http`.
        """
        self.host = registry_host(url)
        plain = plain_http or (_is_loopback(self.host) and not url.startswith("https://"))
        if url.startswith("http://") and not plain:
            raise RegistryError("Rejected", f"{url}: plain HTTP is only used for loopback addresses")
        server = "registry-1.docker.io" if self.host == DOCKER_HUB else self.host
        self._http = RegistryHttp(f"{'http' if plain else 'https'}://{server}", authority)
        self._auth = Authorizer(self._http, login)

    async def __aenter__(self) -> "Registry":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.close()

    async def ping(self) -> None:
        """Raise a RegistryError unless this is a registry that accepts the login."""
        response = await self._send("GET", self._url("/v2/"), "")
        check_status(response, 200, f"registry {self.host}", response.body)

    async def head_manifest(self, image: Image) -> str | None:
        """Return the digest of an image's manifest; None if there is no such image."""
        response = await self._send("HEAD", self._manifest_url(image), _pull(image.repository), _ACCEPT)
        if response.status == 404:
            return None
        check_status(response, 200, f"manifest {image}")
        digest = response.headers.get("Docker-Content-Digest", "")
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        if media_type not in MANIFEST_TYPES or not is_digest(digest):
            return (await self.get_manifest(image)).digest
        if image.digest and image.digest != digest:
            raise RegistryError("DigestMismatch", f"manifest {image}: the registry has {digest}")
        return digest

    async def get_manifest(self, image: Image) -> Manifest:
        """Return an image's manifest; the digest is that of the bytes received."""
        response = await self._send("GET", self._manifest_url(image), _pull(image.repository), _ACCEPT)
        check_status(response, 200, f"manifest {image}", response.body)
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        if media_type not in MANIFEST_TYPES:
            raise RegistryError("InvalidResponse", f"manifest {image}: Content-Type {media_type[:100]!r}")
        digest = digest_of(response.body)
        stated = response.headers.get("Docker-Content-Digest", digest)
        if digest != (image.digest or stated):
            raise RegistryError("DigestMismatch", f"manifest {image}: the registry sent {digest}")
        return Manifest(digest, media_type, response.body, _decode_content(response.body, image))

    async def push_manifest(self, image: Image, body: bytes, media_type: str = MANIFEST_TYPES[0]) -> str:
        """Store a manifest, whose blobs must be there already, and return its digest."""
        digest = digest_of(body)
        headers = {"Content-Type": media_type}
        response = await self._send("PUT", self._manifest_url(image), _push(image.repository), headers, body)
        check_status(response, 201, f"push of {image}", response.body)
        _check_stored(response, digest, f"push of {image}")
        return digest

    async def delete_manifest(self, image: Image) -> bool:
        """Delete a manifest, and with it its tags; returns False if there is none."""
        digest = image.digest or await self.head_manifest(image)
        if digest is None:
            return False
        url = self._manifest_url(image.repository.image(digest))
        response = await self._send("DELETE", url, f"repository:{image.repository.path}:delete,pull,push")
        if response.status == 404:
            return False
        check_status(response, 202, f"deletion of {image}", response.body)
        return True

    async def tags(self, repository: Repository) -> list[str]:
        """Return the tags of a repository, in no particular order; raises NotFound if there is none."""
        url = self._url(f"/v2/{repository.path}/tags/list?n={PAGE_TAGS}")
        tags: list[str] = []
        visited: set[str] = set()
        while url:
            if url in visited or len(visited) == MAX_PAGES or len(tags) > MAX_TAGS:
                raise RegistryError("InvalidResponse", f"tags of {repository}: too many pages")
            visited.add(url)
            response = await self._send("GET", url, _pull(repository))
            check_status(response, 200, f"tags of {repository}", response.body)
            tags += _decode_tags(response.body, repository)
            url = self._next_page(url, response)
        return tags

    async def has_blob(self, repository: Repository, digest: str) -> bool:
        """Return True if the repository has this blob."""
        url = self._blob_url(repository, digest)
        for _ in range(MAX_REDIRECTS):
            response = await self._send("HEAD", url, _pull(repository))
            if response.status not in REDIRECTS:
                break
            url = self._http.resolve(url, response.headers.get("Location", ""))
        if response.status == 404:
            return False
        check_status(response, 200, f"blob {digest} of {repository}")
        return True

    async def push_blob(self, repository: Repository, source: bytes | Path, digest: str) -> None:
        """Store bytes or a file under their digest, unless the repository has them already."""
        if await self.has_blob(repository, digest):
            return
        what = f"upload to {repository}"
        start = self._url(f"/v2/{repository.path}/blobs/uploads/")
        response = await self._send("POST", start, _push(repository))
        check_status(response, 202, what, response.body)
        location = self._upload_url(start, response)
        if isinstance(source, Path):
            location = await self._push_chunks(repository, source, location)
            source = b""
        url = f"{location}{'&' if '?' in location else '?'}{urlencode({'digest': digest})}"
        response = await self._send("PUT", url, _push(repository), OCTETS, source)
        check_status(response, 201, what, response.body)
        _check_stored(response, digest, what)

    async def get_blob(
        self, repository: Repository, digest: str, target: Path, max_bytes: int | None = None
    ) -> None:
        """Download a blob to a file, which exists only if the blob is complete and has its digest.

        More than `max_bytes`, usually the size that the manifest states, are not received.
        """
        partial = target.with_name(f".{target.name}.part")
        try:
            async with self._open_blob(repository, digest) as response:
                received = await _write_body(response, partial, max_bytes)
            if received != digest:
                raise RegistryError("DigestMismatch", f"blob {digest} of {repository}: received {received}")
            await _in_thread(partial, lambda: partial.replace(target))
        finally:
            partial.unlink(missing_ok=True)

    async def read_blob(self, repository: Repository, digest: str, max_bytes: int) -> bytes:
        """Return a blob of at most `max_bytes`, whose digest is verified."""
        content = bytearray()
        async with self._open_blob(repository, digest) as response:
            while chunk := await next_chunk(response):
                content += chunk
                _check_length(len(content), max_bytes)
        if (received := digest_of(content)) != digest:
            raise RegistryError("DigestMismatch", f"blob {digest} of {repository}: received {received}")
        return bytes(content)

    @asynccontextmanager
    async def _open_blob(self, repository: Repository, digest: str) -> AsyncIterator[StreamedResponse]:
        """Open the body of a blob, wherever the registry redirects to."""
        url, scope = self._blob_url(repository, digest), _pull(repository)
        for _ in range(MAX_REDIRECTS + 2):
            login = self._headers(url, scope)
            async with self._http.stream(url, login) as response:
                if response.status in REDIRECTS:
                    url = self._http.resolve(url, response.headers.get("Location", ""))
                    continue
                if response.status == 401 and await self._may_repeat(url, response, scope, login):
                    continue
                check_status(response, 200, f"blob {digest} of {repository}")
                yield response
                return
        raise RegistryError("InvalidResponse", f"blob {digest} of {repository}: too many redirects")

    async def _push_chunks(self, repository: Repository, path: Path, location: str) -> str:
        """Send a file in pieces and return where the upload is completed."""
        start = 0
        with await _in_thread(path, lambda: path.open("rb")) as file:
            while chunk := await _in_thread(path, lambda: file.read(CHUNK_BYTES)):
                headers = {**OCTETS, "Content-Range": f"{start}-{start + len(chunk) - 1}"}
                response = await self._send("PATCH", location, _push(repository), headers, chunk)
                check_status(response, 202, f"upload to {repository}", response.body)
                location = self._upload_url(location, response)
                start += len(chunk)
        return location

    async def _send(
        self,
        method: str,
        url: str,
        scope: str,
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Response:
        """Send a request, a second time if the registry asks for a login."""
        timeout = UPLOAD_SECONDS if body else None
        login = self._headers(url, scope)
        response = await self._http.send(method, url, {**headers, **login}, body, timeout)
        if response.status == 401 and await self._may_repeat(url, response, scope, login):
            login = self._headers(url, scope)
            response = await self._http.send(method, url, {**headers, **login}, body, timeout)
        return response

    async def _may_repeat(
        self, url: str, response: Response | StreamedResponse, scope: str, sent: Mapping[str, str]
    ) -> bool:
        challenge = response.headers.get("WWW-Authenticate", "")
        return self._http.is_own(url) and await self._auth.answer(challenge, scope, sent)

    def _headers(self, url: str, scope: str) -> Mapping[str, str]:
        return self._auth.headers(scope) if self._http.is_own(url) else {}

    def _url(self, path: str) -> str:
        return f"{self._http.base}{path}"

    def _blob_url(self, repository: Repository, digest: str) -> str:
        if not is_digest(digest):
            raise RegistryError("InvalidResponse", f"blob of {repository}: invalid digest {digest[:100]!r}")
        return self._url(f"/v2/{repository.path}/blobs/{digest}")

    def _manifest_url(self, image: Image) -> str:
        return self._url(f"/v2/{image.repository.path}/manifests/{quote(image.reference, safe=':')}")

    def _upload_url(self, url: str, response: Response) -> str:
        return self._http.resolve(url, response.headers.get("Location", ""))

    def _next_page(self, url: str, response: Response) -> str:
        link = _NEXT.search(response.headers.get("Link", ""))
        if link is None:
            return ""
        following = self._http.resolve(url, link[1])
        if not self._http.is_own(following):
            raise RegistryError("InvalidResponse", "a list of tags goes on at another host")
        return following


_ACCEPT = {"Accept": ", ".join(MANIFEST_TYPES)}
_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next"?')


def digest_of(data: bytes | bytearray) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _pull(repository: Repository) -> str:
    return f"repository:{repository.path}:pull"


def _push(repository: Repository) -> str:
    return f"repository:{repository.path}:pull,push"


def _decode_tags(body: bytes, repository: Repository) -> list[str]:
    try:
        return msgspec.json.decode(body, type=_Tags).tags or []
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RegistryError("InvalidResponse", f"tags of {repository}: {error}") from error


def _decode_content(body: bytes, image: Image) -> Content:
    try:
        return msgspec.json.decode(body, type=Content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RegistryError("InvalidResponse", f"manifest {image}: {error}") from error


def _check_stored(response: Response, digest: str, what: str) -> None:
    stored = response.headers.get("Docker-Content-Digest", digest)
    if stored != digest:
        raise RegistryError("DigestMismatch", f"{what}: the registry has {stored[:100]}, not {digest}")


async def _write_body(response: StreamedResponse, path: Path, max_bytes: int | None) -> str:
    """Write the body to a file, which is on disk when this returns; returns the digest of the body."""
    received, size = hashlib.sha256(), 0
    with await _in_thread(path, lambda: path.open("wb")) as file:
        while chunk := await next_chunk(response):
            size += len(chunk)
            _check_length(size, max_bytes)
            received.update(chunk)
            await _in_thread(path, functools.partial(file.write, chunk))
        await _in_thread(path, lambda: os.fsync(file.fileno()))
    return f"sha256:{received.hexdigest()}"


def _check_length(size: int, max_bytes: int | None) -> None:
    if max_bytes is not None and size > max_bytes:
        raise RegistryError("InvalidResponse", f"the blob has more than {max_bytes} bytes")


async def _in_thread(path: Path, action: Callable[[], T]) -> T:
    """Do something with a file in a thread."""
    try:
        return await asyncio.to_thread(action)
    except OSError as error:
        raise RegistryError("InvalidFile", f"{path}: {error.strerror}") from error


def _is_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host
    name = name.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
