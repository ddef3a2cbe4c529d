"""Keeps a replica's credentials equal to their Secret, and the Secrets valid.

Every replica checks its Secret's resourceVersion regularly and loads what changed, so all replicas agree.
Only the leader writes: it restores a deleted or damaged Secret from memory, renews certificates, and issues
the Secrets of other processes that answer pods. While nobody leads, the first replica that starts creates the
Secret.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Namespace, Secret, SecretMetadata
from argosy.operator.endpoint import load_certificate, server_tls
from argosy.operator.endpoint_credentials import (
    TOKEN_KEY_DELAY,
    EndpointCredentials,
    issued_credentials,
    make_credentials,
    needs_renewal_for,
    read_secret,
    renew,
    rotate_ca,
    rotate_token_key,
    secret_body,
)

log = Logger(__name__)

CHECK_INTERVAL_SECONDS: Final = 15.0
"""Between two checks of a Secret. A change passes through the operator's Secret to the issued ones, so three
times this must be less than `endpoint_credentials.TOKEN_KEY_DELAY`."""


class SecretStore:
    """One Secret with credentials.

    `issued`: the operator issued them to another process, without the key of its CA.
    """

    def __init__(self, client: Client, namespace: str, name: str, *, issued: bool = False) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._issued = issued

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def version(self) -> str:
        """Return the Secret's resourceVersion, empty if there is none. Its content is not fetched."""
        with suppress(NotFound):
            secret = await self._client.get(SecretMetadata, self._name, self._namespace)
            return secret.metadata.resource_version
        return ""

    async def read(self) -> tuple[EndpointCredentials | None, str]:
        """Return the credentials, None if they are not usable, and the resourceVersion, empty if missing."""
        with suppress(NotFound):
            secret = await self._client.get(Secret, self._name, self._namespace)
            return read_secret(secret, issued=self._issued), secret.metadata.resource_version
        return None, ""

    async def write(self, credentials: EndpointCredentials, version: str) -> bool:
        """Replace the Secret of this version, or create it if `version` is empty; False on a conflict."""
        body = secret_body(self._namespace, self._name, credentials, version)
        try:
            if version:
                await self._client.replace(Secret, body, self._namespace)
            else:
                await self._create(body)
        except (AlreadyExists, Conflict, NotFound):
            return False
        log.info("wrote the credentials Secret", secret=self._name)
        return True

    async def _create(self, body: dict[str, object]) -> None:
        try:
            await self._client.create(Secret, body, self._namespace)
        except NotFound:  # the operator runs outside of the cluster, and its namespace does not exist yet
            with suppress(AlreadyExists):
                await self._client.create(Namespace, {"metadata": {"name": self._namespace}})
            await self._client.create(Secret, body, self._namespace)


class Credentials:
    """The credentials in use; replaced as a whole when their Secret changes."""

    def __init__(self, store: SecretStore, current: EndpointCredentials, version: str, clock: Clock) -> None:
        self.current = current
        self.tls: ssl.SSLContext = server_tls(current)
        """For servers; new connections get the current certificate."""
        self.version = version
        """The Secret's resourceVersion at the last check; empty if it was missing."""
        self.stored = True
        """False while the Secret is missing or damaged."""
        self._store = store
        self._clock = clock
        self._listeners: list[Callable[[EndpointCredentials], None]] = []

    def token(self, job_uid: str) -> str:
        return self.current.token(job_uid, self._clock.now())

    def verify(self, token: str, job_uid: str) -> bool:
        return self.current.verify(token, job_uid)

    def subscribe(self, listener: Callable[[EndpointCredentials], None]) -> None:
        """Call the listener with the credentials whenever they change."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Load changes of the Secret until cancelled."""
        await _repeat(self.refresh)

    async def refresh(self) -> None:
        """Check the Secret once. While it is missing or damaged, the credentials in memory stay in use."""
        version = await self._store.version()
        if version and version == self.version:
            return
        credentials, self.version = await self._store.read() if version else (None, "")
        if credentials is None and self.stored:
            log.warning("credentials Secret missing or damaged; using the credentials in memory")
        self.stored = credentials is not None
        if credentials is not None and credentials != self.current:
            self.current = credentials
            load_certificate(self.tls, credentials)
            for listener in self._listeners:
                listener(credentials)
            log.info("reloaded credentials")


class IssuedSecret(Struct, frozen=True):
    """The Secret of another process that answers pods, and the DNS names of its certificate."""

    store: SecretStore
    names: Sequence[str]


class CredentialMaintainer:
    """Keeps all Secrets with credentials valid; runs in the leader."""

    def __init__(
        self,
        credentials: Credentials,
        own: SecretStore,
        own_names: Sequence[str],
        issued: Sequence[IssuedSecret],
        clock: Clock,
    ) -> None:
        self._credentials = credentials
        self._own = own
        self._own_names = own_names
        self._issued = issued
        self._clock = clock

    async def run(self) -> None:
        """Maintain all Secrets until cancelled."""
        await _repeat(self.maintain)

    async def maintain(self) -> None:
        """Check all Secrets once, and write those that are not as they should be."""
        await self._credentials.refresh()
        await self._maintain_own()
        for secret in self._issued:
            await self._maintain_issued(secret)

    async def _maintain_own(self) -> None:
        in_use, now = self._credentials, self._clock.now()
        wanted = in_use.current
        if needs_renewal_for(wanted, self._own_names, now):
            wanted = renew(wanted, self._own_names, now)
        if (wanted != in_use.current or not in_use.stored) and await self._own.write(wanted, in_use.version):
            await in_use.refresh()

    async def _maintain_issued(self, secret: IssuedSecret) -> None:
        existing, version = await secret.store.read()
        now = self._clock.now()
        wanted = issued_credentials(self._credentials.current, existing, secret.names, now)
        if wanted != existing:
            await secret.store.write(wanted, version)


class RotationError(Exception):
    """Credentials cannot be rotated now; the message says why, and what to do."""


async def rotate(store: SecretStore, clock: Clock, *, ca: bool) -> EndpointCredentials:
    """Replace the token key, and the CA if `ca`; return the credentials before.

    Replicas and observers load the new credentials by themselves.
    """
    while True:
        old, version = await store.read()
        now = clock.now()
        if old is None:
            raise RotationError(f"Secret {store}: missing or damaged; a running operator repairs it")
        if old.rotated_at and now < (ready := old.rotated_at + TOKEN_KEY_DELAY):
            raise RotationError(
                f"Secret {store}: rotated less than {TOKEN_KEY_DELAY.seconds} s ago;"
                f" try again after {ready:%H:%M:%S} UTC, when every replica has read it"
            )
        new = rotate_token_key(old, now)
        if await store.write(rotate_ca(new, now) if ca else new, version):
            return old


async def wait_for_credentials(store: SecretStore, clock: Clock) -> Credentials:
    """Return the credentials that the operator issued to this process, as soon as they exist."""
    log.info("waiting for the credentials Secret", secret=str(store))
    while True:
        credentials, version = await store.read()
        if credentials is not None:
            return Credentials(store, credentials, version, clock)
        await asyncio.sleep(1.0)


async def load_or_create(
    store: SecretStore, names: Sequence[str], clock: Clock, is_led: Callable[[], Awaitable[bool]]
) -> Credentials:
    """Return the operator's credentials; create them if there are none.

    If there is a leader (`is_led`), it gets time to restore a lost Secret from its memory first.
    """
    deadline = clock.monotonic() + 2 * CHECK_INTERVAL_SECONDS
    while True:
        credentials, version = await store.read()
        if credentials is not None:
            return Credentials(store, credentials, version, clock)
        if clock.monotonic() < deadline and await is_led():
            await asyncio.sleep(1.0)
            continue
        await store.write(make_credentials(names, clock.now()), version)


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await step()
        except ApiError as error:
            log.warning("credentials not checked; retrying", error=str(error))
        await asyncio.sleep(CHECK_INTERVAL_SECONDS)
