"""Sends the requests of one registry, follows redirects, and turns every failure into a RegistryError.

A registry chooses where its redirects, uploads and tokens lead to, so these URLs are not trusted: plain HTTP
is only used with the registry itself, and other hosts never see its credentials.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import msgspec

from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.engine.proxies import environment_proxy
from argosy.engine.tls import TlsContexts
from argosy.wire.client import Client, Response, StreamedResponse
from argosy.wire.origin import Origin

REQUEST_SECONDS = 60.0
"""Time for a whole request; for a stream, until its head arrives, and between two pieces of its body."""
UPLOAD_SECONDS = 600.0
"""Time for a request with a piece of a blob."""
MAX_ANSWER_BYTES = 4 << 20
"""Size of a response that is not a blob: the limit of the OCI specification for manifests."""
MAX_REDIRECTS = 5
MAX_MESSAGE_CHARS = 300

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CODES = {401: "Unauthorized", 403: "Denied", 404: "NotFound", 429: "TooManyRequests"}


class RegistryError(Exception):
    """A registry did not do what it was asked for."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        """Unreachable, Timeout, Unavailable, TooManyRequests, Unauthorized, Denied, NotFound, Rejected,
        InvalidResponse, DigestMismatch or InvalidFile."""
        self.message = message

    @property
    def is_temporary(self) -> bool:
        """Return True if the same request may succeed later without anyone changing anything."""
        return self.code in ("Unreachable", "Timeout", "Unavailable", "TooManyRequests")


class RegistryHttp:
    """Connections to one registry, and for single requests to the hosts that it refers to."""

    def __init__(self, base: str, authority: bytes | None) -> None:
        self.base = base
        self._contexts = TlsContexts(authority)
        self._other_contexts = TlsContexts(authority, with_system=True)
        """For hosts that the registry refers to: the public storage behind a private registry, for one."""
        self._client: Client | None = None

    def is_own(self, url: str) -> bool:
        """Return True if the URL is of the registry itself."""
        return _origin_of(url) == _origin_of(self.base)

    def resolve(self, url: str, reference: str) -> str:
        """Return the URL that a registry refers to in an answer from `url`."""
        try:
            resolved = urljoin(url, reference)
            parts = urlsplit(resolved)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid = False
        if not valid or not reference.isascii() or any(char <= " " for char in reference):
            raise RegistryError("InvalidResponse", f"the registry refers to {_cut(reference)!r}")
        base = urlsplit(self.base)
        if parts.scheme == "http" and base.scheme == "https" and parts.hostname == base.hostname:
            # Registries behind a proxy that ends TLS often do not know the scheme of their own URL.
            resolved = parts._replace(scheme="https", netloc=base.netloc).geturl()
        if not resolved.startswith("https:") and not self.is_own(resolved):
            raise RegistryError("InvalidResponse", f"the registry refers to {_cut(resolved)} without TLS")
        return resolved

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Return the response of a request, whatever its status; redirects are not followed."""
        try:
            async with self._client_of(url) as client:
                return await client.send(
                    method,
                    _target(url),
                    headers,
                    body,
                    context=self._tls(url),
                    timeout=timeout or REQUEST_SECONDS,
                    limit=MAX_ANSWER_BYTES,
                )
        except (OSError, ValueError, KubeconfigError) as error:
            raise _failure(method, url, error) from error

    @asynccontextmanager
    async def stream(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[StreamedResponse]:
        """Send a GET and wait for the head of its response."""
        try:
            async with (
                self._client_of(url) as client,
                client.stream(
                    "GET", _target(url), headers, context=self._tls(url), timeout=REQUEST_SECONDS
                ) as response,
            ):
                yield response
        except (OSError, ValueError, KubeconfigError) as error:
            raise _failure("GET", url, error) from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _tls(self, url: str) -> ssl.SSLContext | None:
        if not url.startswith("https:"):
            return None
        return (self._contexts if self.is_own(url) else self._other_contexts).current(None)

    @asynccontextmanager
    async def _client_of(self, url: str) -> AsyncIterator[Client]:
        if self.is_own(url):
            if self._client is None:
                self._client = _new_client(self.base)
            yield self._client
            return
        client = _new_client(url)
        try:
            yield client
        finally:
            await client.close()


def check_status(response: Response | StreamedResponse, expected: int, what: str, body: bytes = b"") -> None:
    """Raise a RegistryError unless the response has the expected status."""
    status = response.status
    if status == expected:
        return
    code = _CODES.get(status) or ("Unavailable" if status >= 500 else "Rejected")
    if status < 400:
        code = "InvalidResponse"
    detail = _first_error(body)
    raise RegistryError(code, f"{what}: status {status}{': ' + detail if detail else ''}")


def _first_error(body: bytes) -> str:
    """Return the first error of an OCI error response; empty for any other body."""
    try:
        error = msgspec.json.decode(body)["errors"][0]
        text, detail = f"{error['code']} {error.get('message', '')}".strip(), _detail(error.get("detail"))
        return _cut(f"{text}: {detail}" if detail else text)
    except (msgspec.DecodeError, LookupError, TypeError, AttributeError, UnicodeDecodeError):
        return ""


def _detail(detail: object) -> str:
    """Return what docker-registry says of its storage: a text, or the number of an error of its system."""
    match detail:
        case str():
            return detail
        case {"Enclosed": {"Err": int(number)}}:
            return os.strerror(number)
        case _:
            return ""


def _failure(method: str, url: str, error: Exception) -> RegistryError:
    parts = urlsplit(url)
    where = _cut(f"{method} {parts.scheme}://{parts.netloc}{parts.path}")
    if isinstance(error, TimeoutError):
        return RegistryError("Timeout", f"{where}: timed out")
    if isinstance(error, ValueError) and not isinstance(error, OSError):  # an untrusted certificate is both
        return RegistryError("InvalidResponse", f"{where}: {error}")
    return RegistryError("Unreachable", f"{where}: {str(error) or repr(error)}")


def _new_client(url: str) -> Client:
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    return Client(Origin.from_url(base, proxy=environment_proxy(base, os.environ)))


def _origin_of(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"


def _cut(text: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in text[: MAX_MESSAGE_CHARS + 1])
    return shown if len(shown) <= MAX_MESSAGE_CHARS else f"{shown[: MAX_MESSAGE_CHARS - 3]}..."


async def next_chunk(response: StreamedResponse) -> bytes:
    """Return the next bytes of a body, empty at its end; a server that stops sending is a timeout."""
    async with asyncio.timeout(REQUEST_SECONDS):
        return await response.chunk()
