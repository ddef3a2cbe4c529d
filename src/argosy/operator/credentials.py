"""Keeps a replica's credentials current with their Secret, and the Secret itself in order.

Every replica looks at its Secret's version now and then and takes over what changed, so replicas agree. Only
the leader writes: it puts a Secret that was deleted or damaged back from memory, renews certificates, and
gives observers their share. Without a leader, the first replica that starts makes the Secret.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Namespace, Secret, SecretMetadata
from argosy.operator.endpoint import load_certificate, server_tls
from argosy.operator.endpoint_credentials import (
    TOKEN_KEY_DELAY,
    EndpointCredentials,
    make_credentials,
    needs_renewal_for,
    observer_credentials,
    read_secret,
    renew,
    rotate_ca,
    rotate_token_key,
    secret_body,
)

log = Logger(__name__)

CHECK_INTERVAL_SECONDS: Final = 15.0
"""Between two looks at a Secret. A change passes through the operator's Secret to the observers', so that
three times this must be less than `trust.TOKEN_KEY_DELAY`."""


class SecretStore:
    """One Secret with credentials."""

    def __init__(self, client: Client, namespace: str, name: str, *, for_observer: bool = False) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._for_observer = for_observer

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def version(self) -> str:
        """Return the Secret's resourceVersion; empty if there is none. Its content is not fetched."""
        with suppress(NotFound):
            found = await self._client.get(SecretMetadata, self._name, self._namespace)
            return found.metadata.resource_version
        return ""

    async def read(self) -> tuple[EndpointCredentials | None, str]:
        """Return what the Secret holds, None if nothing usable, and its version, empty if it is missing."""
        with suppress(NotFound):
            secret = await self._client.get(Secret, self._name, self._namespace)
            trust = read_secret(secret, for_observer=self._for_observer)
            return trust, secret.metadata.resource_version
        return None, ""

    async def write(self, trust: EndpointCredentials, version: str) -> bool:
        """Replace the Secret of this version, or create it if empty; False if someone else was faster."""
        body = secret_body(self._namespace, self._name, trust, version)
        try:
            if version:
                await self._client.replace(Secret, body, self._namespace)
            else:
                await self._create(body)
        except (AlreadyExists, Conflict, NotFound):
            return False
        log.info("wrote the Secret with credentials", secret=self._name)
        return True

    async def _create(self, body: dict[str, object]) -> None:
        try:
            await self._client.create(Secret, body, self._namespace)
        except NotFound:  # the operator runs outside of the cluster, and its namespace is missing
            with suppress(AlreadyExists):
                await self._client.create(Namespace, {"metadata": {"name": self._namespace}})
            await self._client.create(Secret, body, self._namespace)


class Credentials:
    """The credentials in use; replaced as a whole when their Secret changes."""

    def __init__(self, store: SecretStore, trust: EndpointCredentials, version: str, clock: Clock) -> None:
        self.current = trust
        self.tls: ssl.SSLContext = server_tls(trust)
        """For servers; new connections get the new certificate."""
        self.version = version
        """Of the Secret when it was last looked at; empty if there was none."""
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
        """Call the listener with the credentials whenever they are others."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Take over what changes in the Secret, until cancelled."""
        await _repeat(self.refresh)

    async def refresh(self) -> None:
        """Look at the Secret once. While it is missing or damaged, what was read before stays in use."""
        version = await self._store.version()
        if version and version == self.version:
            return
        trust, self.version = await self._store.read() if version else (None, "")
        if trust is None and self.stored:
            log.warning("the Secret with credentials is missing or damaged; those in memory stay in use")
        self.stored = trust is not None
        if trust is not None and trust != self.current:
            self.current = trust
            load_certificate(self.tls, trust)
            for listener in self._listeners:
                listener(trust)
            log.info("reloaded credentials")


class CredentialMaintainer:
    """What the leader does about the credentials in the cluster."""

    def __init__(
        self,
        credentials: Credentials,
        own: SecretStore,
        own_names: Sequence[str],
        observers: SecretStore | None,
        observer_names: Sequence[str],
        clock: Clock,
    ) -> None:
        self._credentials = credentials
        self._own = own
        self._own_names = own_names
        self._observers = observers
        self._observer_names = observer_names
        self._clock = clock

    async def run(self) -> None:
        """Keep Secrets in order until cancelled."""
        await _repeat(self.maintain)

    async def maintain(self) -> None:
        await self._credentials.refresh()
        await self._maintain_own()
        if self._observers is not None:
            await self._maintain_observers(self._observers)

    async def _maintain_own(self) -> None:
        current, now = self._credentials, self._clock.now()
        trust = current.current
        if needs_renewal_for(trust, self._own_names, now):
            trust = renew(trust, self._own_names, now)
        if (trust != current.current or not current.stored) and await self._own.write(trust, current.version):
            await current.refresh()

    async def _maintain_observers(self, store: SecretStore) -> None:
        existing, version = await store.read()
        trust = observer_credentials(
            self._credentials.current, existing, self._observer_names, self._clock.now()
        )
        if trust != existing:
            await store.write(trust, version)


class RotationError(Exception):
    """Credentials cannot be rotated now; the message says why, and what to do."""


async def rotate(store: SecretStore, clock: Clock, *, ca: bool) -> EndpointCredentials:
    """Replace the token key, and the certificate authority if asked for; return what was replaced.

    Replicas and observers take over the new credentials by themselves.
    """
    while True:
        old, version = await store.read()
        now = clock.now()
        if old is None:
            raise RotationError(f"Secret {store}: not found, or damaged; an operator that runs repairs it")
        if old.rotated_at and now < (ready := old.rotated_at + TOKEN_KEY_DELAY):
            raise RotationError(
                f"Secret {store}: was rotated less than {TOKEN_KEY_DELAY.seconds} s ago;"
                f" try again after {ready:%H:%M:%S} UTC, when every replica has read it"
            )
        new = rotate_token_key(old, now)
        if await store.write(rotate_ca(new, now) if ca else new, version):
            return old


async def wait_for_credentials(store: SecretStore, clock: Clock) -> Credentials:
    """Return the credentials that the operator made for this process; waits until they are there."""
    log.info("waiting for the Secret with credentials", secret=str(store))
    while True:
        trust, version = await store.read()
        if trust is not None:
            return Credentials(store, trust, version, clock)
        await asyncio.sleep(1.0)


async def load_or_create(
    store: SecretStore, names: Sequence[str], clock: Clock, is_led: Callable[[], Awaitable[bool]]
) -> Credentials:
    """Return the operator's credentials; made on first use.

    A leader that still has them in memory is given time to put a lost Secret back: `is_led` tells whether
    there is one.
    """
    deadline = clock.monotonic() + 2 * CHECK_INTERVAL_SECONDS
    while True:
        trust, version = await store.read()
        if trust is not None:
            return Credentials(store, trust, version, clock)
        if clock.monotonic() < deadline and await is_led():
            await asyncio.sleep(1.0)
            continue
        await store.write(make_credentials(names, clock.now()), version)


async def _repeat(step: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await step()
        except ApiError as error:
            log.warning("cannot look after the credentials, trying again", error=str(error))
        await asyncio.sleep(CHECK_INTERVAL_SECONDS)
