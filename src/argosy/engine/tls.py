"""TLS contexts for an API server, replaced when the client certificate or the authority's file changes.

Connections are pooled by their context: a new context retires the connections that were made with the one
before. Requests and watches that are under way go on to their end. A file that is half written, empty or
missing for a moment changes nothing: the context before it stays in use until the file is whole.
"""

import ssl
from pathlib import Path

from argosy.engine.certificates import Certificate, load_authority, load_certificate
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.credentials import RELOAD_SECONDS


class TlsContexts:
    """Gives the context of the moment for a client certificate."""

    def __init__(
        self,
        authority: bytes | None = None,
        authority_file: Path | None = None,
        *,
        verify: bool = True,
        clock: Clock = SystemClock(),
        max_age: float = RELOAD_SECONDS,
    ) -> None:
        self._authority = authority
        self._file = authority_file
        self._verify = verify
        self._clock = clock
        self._max_age = max_age
        self._read_at = clock.monotonic()
        self._certificate: Certificate | None = None
        self._context: ssl.SSLContext | None = None

    def current(self, certificate: Certificate | None) -> ssl.SSLContext:
        """The context for requests with this certificate; `ssl.SSLError` if there never was a usable one."""
        if self._file is not None and self._clock.monotonic() - self._read_at > self._max_age:
            self._reload_authority(self._file)
        if self._context is None or certificate != self._certificate:
            self._context = self._build(self._authority, certificate)
            self._certificate = certificate
        return self._context

    def expire(self) -> None:
        """Read the authority's file again at the next request: the server's certificate was not accepted."""
        self._read_at = float("-inf")

    def _reload_authority(self, path: Path) -> None:
        self._read_at = self._clock.monotonic()
        try:
            found = path.read_bytes()
            if found == self._authority:
                return
            context = self._build(found, self._certificate)
        except OSError:  # ssl.SSLError is one too
            return
        self._authority = found
        self._context = context

    def _build(self, authority: bytes | None, certificate: Certificate | None) -> ssl.SSLContext:
        if authority is None:
            context = ssl.create_default_context()
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            load_authority(context, authority)
        # As Go does: an intermediate authority may be trusted by itself, and extensions that newer Pythons
        # insist on may be missing.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        # A server that speaks HTTP/2 only can now say so in the handshake.
        context.set_alpn_protocols(["http/1.1"])
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            load_certificate(context, certificate)
        return context
