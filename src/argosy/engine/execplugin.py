"""Runs the command of a kubeconfig user that prints credentials (`ExecCredential`).

It runs again shortly before what it gave expires, and when the API server refused what it gave. A refusal of
credentials that have been replaced since does not count: the answer was only late.
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
        interactive: bool = False,
        clock: Clock = SystemClock(),
        timeout: float = 60.0,
    ) -> None:
        """`interactive`: the plugin may ask the user at the terminal, and takes as long as they do."""
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
            if self._identity is None or self._expired():
                await self._run()
            if self._identity is None:
                raise self._error("it gave no credentials")
            return self._identity

    def refresh(self, refused: Identity) -> bool:
        if self._identity == refused:
            self._identity = None
        return True

    def _expired(self) -> bool:
        return self._expires is not None and self._clock.now() >= self._expires - EXPIRY_MARGIN

    async def _run(self) -> None:
        spec: dict[str, object] = {"interactive": self._interactive}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        question = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **self._environment,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(question).decode(),
        }
        answer = self._decode(await self._output(environment))
        certificate = self._certificate(answer)
        if not answer.token and certificate is None:
            raise self._error("it gave neither token nor certificate")
        self._identity = Identity(token=answer.token, certificate=certificate)
        self._expires = answer.expiration_timestamp

    def _certificate(self, answer: "_Status") -> Certificate | None:
        if not answer.client_certificate_data and not answer.client_key_data:
            return None
        given = Certificate(answer.client_certificate_data.encode(), answer.client_key_data.encode())
        try:
            check_certificate(given)
        except ssl.SSLError as error:
            raise self._error(f"its certificate and key cannot be used: {error}") from error
        return given

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
            raise self._error(f"it cannot be started: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(None if self._interactive else self._timeout):
                out, complaint = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"it gave no answer in {self._timeout:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = (complaint or b"").decode("utf-8", "replace").strip()[-500:]
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
