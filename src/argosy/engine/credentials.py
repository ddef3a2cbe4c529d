"""Provides credentials for the API server and refreshes them.

Tokens and certificates in files are read again every minute, and at once after a 401. Commands that print
credentials are in `execplugin`.
"""

import base64
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from argosy.engine.certificates import Certificate, check_certificate
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import Unauthorized


class Identity(Struct, frozen=True):
    """What a request authenticates with: a token, a user name with password, or a client certificate."""

    token: str = ""
    basic: tuple[str, str] | None = None
    certificate: Certificate | None = None

    @property
    def headers(self) -> dict[str, str]:
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.basic:
            pair = base64.b64encode(":".join(self.basic).encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}


RELOAD_SECONDS = 60.0
"""How long the content of a file is used before the file is read again."""


class Credentials(Protocol):
    async def current(self) -> Identity: ...

    def refresh(self, rejected: Identity) -> bool:
        """Return True if `current` may give another identity than the one that the server rejected."""
        ...


class FixedCredentials:
    """A token, password or certificate in the kubeconfig itself."""

    def __init__(self, identity: Identity = Identity()) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    def refresh(self, rejected: Identity) -> bool:
        return False


class FileCredentials:
    """A token, or a client certificate with its key, in files that another process replaces.

    While a file is missing, or the key does not match the certificate because only one of the two files has
    been replaced, the last valid content is used.
    """

    def __init__(
        self,
        *,
        token: Path | None = None,
        certificate: tuple[Path, Path] | None = None,
        default: Identity = Identity(),
        clock: Clock = SystemClock(),
        max_age: float = RELOAD_SECONDS,
    ) -> None:
        """`certificate` has the paths of certificate and key; `default` has what is not in a file."""
        self._token = token
        self._certificate = certificate
        self._clock = clock
        self._max_age = max_age
        self._identity = default
        self._read_at = float("-inf")

    async def current(self) -> Identity:
        if self._clock.monotonic() - self._read_at > self._max_age:
            self._read()
        return self._identity

    def refresh(self, rejected: Identity) -> bool:
        self._read()
        return self._identity != rejected

    def _read(self) -> None:
        before = self._identity
        identity = Identity(self._read_token(before.token), before.basic, self._read_certificate(before))
        if identity != before:
            self._identity = identity
        self._read_at = self._clock.monotonic()

    def _read_token(self, before: str) -> str:
        if self._token is None:
            return before
        try:
            return self._token.read_text().strip() or before
        except (OSError, UnicodeDecodeError) as error:
            if before:
                return before
            raise Unauthorized(0, "NoToken", f"cannot read token file {self._token}: {error}") from error

    def _read_certificate(self, identity: Identity) -> Certificate | None:
        before = identity.certificate
        if self._certificate is None:
            return before
        try:
            certificate = Certificate(*(path.read_bytes() for path in self._certificate))
            if certificate != before:
                check_certificate(certificate)
        except OSError as error:  # includes ssl.SSLError
            if before is not None:
                return before
            names = " and ".join(map(str, self._certificate))
            raise Unauthorized(0, "NoCertificate", f"cannot use {names}: {error}") from error
        return certificate
