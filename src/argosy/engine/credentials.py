"""Who we are to the API server, kept fresh.

Tokens and certificates in files are read again every minute, and at once when the API server answers 401.
Commands that print credentials are in `execplugin`.
"""

import base64
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from argosy.engine.certificates import Certificate, check_certificate
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import Unauthorized


class Identity(Struct, frozen=True):
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
"""How long what was read from a file is used without looking at the file again."""


class Credentials(Protocol):
    async def current(self) -> Identity: ...

    def refresh(self, refused: Identity) -> bool:
        """The API server refused this identity; return True if the next `current` may be another."""
        ...


class FixedCredentials:
    """A token, password or certificate written into the kubeconfig."""

    def __init__(self, identity: Identity = Identity()) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    def refresh(self, refused: Identity) -> bool:
        return False


class FileCredentials:
    """A token, or a client certificate and its key, in files that somebody else replaces.

    A file that is missing for a moment, or a key that does not belong to the certificate because only one of
    the two has been replaced yet, changes nothing: what was read before is used until they are whole.
    """

    def __init__(
        self,
        *,
        token: Path | None = None,
        certificate: tuple[Path, Path] | None = None,
        otherwise: Identity = Identity(),
        clock: Clock = SystemClock(),
        max_age: float = RELOAD_SECONDS,
    ) -> None:
        """`certificate` names the files of certificate and key; `otherwise` has what is in no file."""
        self._token = token
        self._certificate = certificate
        self._clock = clock
        self._max_age = max_age
        self._identity = otherwise
        self._read_at = float("-inf")

    async def current(self) -> Identity:
        if self._clock.monotonic() - self._read_at > self._max_age:
            self._read()
        return self._identity

    def refresh(self, refused: Identity) -> bool:
        self._read()
        return self._identity != refused

    def _read(self) -> None:
        before = self._identity
        found = Identity(self._read_token(before.token), before.basic, self._read_certificate(before))
        if found != before:
            self._identity = found
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
            found = Certificate(*(path.read_bytes() for path in self._certificate))
            if found != before:
                check_certificate(found)
        except OSError as error:  # ssl.SSLError is one too
            if before is not None:
                return before
            names = " and ".join(map(str, self._certificate))
            raise Unauthorized(0, "NoCertificate", f"cannot use {names}: {error}") from error
        return found
