"""Provides the TLS context for an API server, and replaces it when certificates change.

Connections are pooled by their context: with a new context, idle connections of the previous one are closed,
and running requests and watches finish on theirs. While the CA file is incomplete, empty or missing, the
previous context stays in use.
"""

import ssl
from pathlib import Path

from argosy.engine.certificates import Certificate, load_authority, load_certificate
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.credentials import RELOAD_SECONDS


class TlsContexts:
    """Returns the current context for a client certificate."""

    def __init__(
        self,
        authority: bytes | None = None,
        authority_file: Path | None = None,
        *,
        verify: bool = True,
        with_system: bool = False,
        clock: Clock = SystemClock(),
        max_age: float = RELOAD_SECONDS,
    ) -> None:
        self._authority = authority
        self._file = authority_file
        self._verify = verify
        self._with_system = with_system
        """Whether the authorities of the system are trusted beside that given."""
        self._clock = clock
        self._max_age = max_age
        self._read_at = clock.monotonic()
        self._certificate: Certificate | None = None
        self._context: ssl.SSLContext | None = None

    def current(self, certificate: Certificate | None) -> ssl.SSLContext:
        """Return the context for requests with this certificate; `ssl.SSLError` if there is none."""
        if self._file is not None and self._clock.monotonic() - self._read_at > self._max_age:
            self._reload_authority(self._file)
        if self._context is None or certificate != self._certificate:
            self._context = self._build(self._authority, certificate)
            self._certificate = certificate
        return self._context

    def expire(self) -> None:
        """Read the CA file again at the next request, because the server's certificate was not trusted."""
        self._read_at = float("-inf")

    def _reload_authority(self, path: Path) -> None:
        self._read_at = self._clock.monotonic()
        try:
            bundle = path.read_bytes()
            if bundle == self._authority:
                return
            context = self._build(bundle, self._certificate)
        except OSError:  # includes ssl.SSLError
            return
        self._authority = bundle
        self._context = context

    def _build(self, authority: bytes | None, certificate: Certificate | None) -> ssl.SSLContext:
        if authority is None or self._with_system:
            context = ssl.create_default_context()
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if authority is not None:
            load_authority(context, authority)
        # As in Go, an intermediate CA may be trusted on its own, and certificates may lack extensions that
        # newer Python versions require.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        # A server that supports only HTTP/2 then fails the handshake with a clear error.
        context.set_alpn_protocols(["http/1.1"])
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            load_certificate(context, certificate)
        return context
