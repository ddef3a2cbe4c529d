"""Runs the command of a kubeconfig user that prints credentials (`ExecCredential`).

It is run again shortly before the credentials expire, and when the API server has rejected them. The
rejection of credentials that have been replaced since is ignored.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, field

from argosy.engine.certificates import Certificate, check_certificate
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.credentials import Identity
from argosy.engine.errors import Unauthorized


class ExecPlugin:
    """A command that prints an `ExecCredential`, as cloud providers supply for their clusters."""

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        api_version: str = "client.authentication.k8s.io/v1",
        cluster: Mapping[str, object] | None = None,
        install_hint: str = "",
        interactive: bool = False,
        clock: Clock = SystemClock(),
        timeout: float = 60.0,
    ) -> None:
        """`interactive`: the plugin may prompt at the terminal, and has no timeout."""
        self._command = [command, *args]
        self._environment = dict(environment or {})
        self._api_version = api_version
        self._cluster = cluster
        self._install_hint = install_hint
        self._interactive = interactive
        self._clock = clock
        self._timeout = timeout
        self._identity: Identity | None = None
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def current(self) -> Identity:
        async with self._running:
            if self._identity is None or self._is_expired():
                await self._run()
            if self._identity is None:
                raise self._error("no credentials")
            return self._identity

    def refresh(self, rejected: Identity) -> bool:
        if self._identity == rejected:
            self._identity = None
        return True

    def _is_expired(self) -> bool:
        return self._expires is not None and self._clock.now() >= self._expires - EXPIRY_MARGIN

    async def _run(self) -> None:
        spec: dict[str, object] = {"interactive": self._interactive}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        request = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **self._environment,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        }
        status = self._decode(await self._output(environment))
        certificate = self._certificate(status)
        if not status.token and certificate is None:
            raise self._error("neither token nor certificate in its output")
        self._identity = Identity(token=status.token, certificate=certificate)
        self._expires = status.expiration_timestamp

    def _certificate(self, status: "_Status") -> Certificate | None:
        if not status.client_certificate_data and not status.client_key_data:
            return None
        certificate = Certificate(status.client_certificate_data.encode(), status.client_key_data.encode())
        try:
            check_certificate(certificate)
        except ssl.SSLError as error:
            raise self._error(f"invalid certificate or key: {error}") from error
        return certificate

    async def _output(self, environment: Mapping[str, str]) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environment,
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self._interactive else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {self._install_hint}" if self._install_hint else ""
            raise self._error(f"cannot be started: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(None if self._interactive else self._timeout):
                stdout, stderr = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"timed out after {self._timeout:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            message = (stderr or b"").decode("utf-8", "replace").strip()[-500:]
            raise self._error(f"exit code {process.returncode}: {message}")
        return stdout

    def _decode(self, output: bytes) -> "_Status":
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.MsgspecError as error:
            raise self._error(f"its output is not an ExecCredential: {error}") from error
        if credential.api_version and credential.api_version != self._api_version:
            raise self._error(
                f"its output is {credential.api_version}, not {self._api_version} as configured"
            )
        return credential.status

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
