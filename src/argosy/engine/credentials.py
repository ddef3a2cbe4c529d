"""Who we are to the API server, kept fresh.

Tokens in files are read again every minute, exec plugins run again shortly before what they gave expires, and
both at once when the API server answers 401: `refresh` forgets what is cached and says whether asking again
can give anything new.
"""

import asyncio
import base64
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct, field

from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import Unauthorized


class Certificate(Struct, frozen=True):
    """A client certificate with its key, both PEM."""

    certificate: bytes
    key: bytes


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


class Credentials(Protocol):
    async def current(self) -> Identity: ...

    def refresh(self) -> bool:
        """Forget what is cached; true if the next `current` may differ."""
        ...


class FixedCredentials:
    """A token, password or certificate written into the kubeconfig."""

    def __init__(self, identity: Identity = Identity()) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    def refresh(self) -> bool:
        return False


class TokenFile:
    """A token that somebody else rotates in a file, as the kubelet does for pods."""

    def __init__(
        self,
        path: Path,
        certificate: Certificate | None = None,
        *,
        clock: Clock = SystemClock(),
        max_age: float = 60.0,
    ) -> None:
        self._path = path
        self._certificate = certificate
        self._clock = clock
        self._max_age = max_age
        self._identity = Identity()
        self._read_at = float("-inf")

    async def current(self) -> Identity:
        if self._clock.monotonic() - self._read_at > self._max_age:
            self._read()
        return self._identity

    def refresh(self) -> bool:
        self._read_at = float("-inf")
        return True

    def _read(self) -> None:
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            if not self._identity.token:
                raise Unauthorized(
                    0, "NoToken", f"cannot read token file {self._path}: {error.strerror}"
                ) from error
            return
        self._identity = Identity(token=token, certificate=self._certificate)
        self._read_at = self._clock.monotonic()


class ExecPlugin:
    """A command that prints an `ExecCredential`, as cloud vendors ship for their clusters."""

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        api_version: str = "client.authentication.k8s.io/v1",
        cluster: Mapping[str, object] | None = None,
        install_hint: str = "",
        clock: Clock = SystemClock(),
        timeout: float = 60.0,
    ) -> None:
        self._command = [command, *args]
        self._environment = dict(environment or {})
        self._api_version = api_version
        self._cluster = cluster
        self._install_hint = install_hint
        self._clock = clock
        self._timeout = timeout
        self._identity: Identity | None = None
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def current(self) -> Identity:
        async with self._running:
            if self._identity is None or self._expired():
                await self._run()
            if self._identity is None:
                raise self._error("it gave no credentials")
            return self._identity

    def refresh(self) -> bool:
        self._identity = None
        return True

    def _expired(self) -> bool:
        return self._expires is not None and self._clock.now() >= self._expires - EXPIRY_MARGIN

    async def _run(self) -> None:
        spec: dict[str, object] = {"interactive": False}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        question = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **self._environment,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(question).decode(),
        }
        answer = self._decode(await self._output(environment))
        certificate = None
        if answer.client_certificate_data:
            certificate = Certificate(
                answer.client_certificate_data.encode(), answer.client_key_data.encode()
            )
        if not answer.token and certificate is None:
            raise self._error("it gave neither token nor certificate")
        self._identity = Identity(token=answer.token, certificate=certificate)
        self._expires = answer.expiration_timestamp

    async def _output(self, environment: Mapping[str, str]) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {self._install_hint}" if self._install_hint else ""
            raise self._error(f"it cannot be started: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(self._timeout):
                out, complaint = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"it gave no answer in {self._timeout:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = complaint.decode("utf-8", "replace").strip()[-500:]
            raise self._error(f"it ended with exit code {process.returncode}: {last}")
        return out

    def _decode(self, out: bytes) -> "_Status":
        try:
            answer = msgspec.json.decode(out, type=_ExecCredential)
        except msgspec.MsgspecError as error:
            raise self._error(f"its output is not an ExecCredential: {error}") from error
        if answer.api_version and answer.api_version != self._api_version:
            raise self._error(f"it speaks {answer.api_version}, the kubeconfig says {self._api_version}")
        return answer.status

    def _error(self, problem: str) -> Unauthorized:
        return Unauthorized(0, "ExecPlugin", f"exec plugin {self._command[0]}: {problem}")


EXPIRY_MARGIN = timedelta(seconds=10)


class _Status(Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(Struct, rename="camel"):
    api_version: str = ""
    status: _Status = field(default_factory=_Status)
