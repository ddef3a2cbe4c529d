"""Uses the client of OCI registries from threads, and repeats what may succeed later."""

import asyncio
import os
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final, TypeVar

from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.drivers.registry_authority import AUTHORITY, read_authority
from argosy.checkpoint.drivers.registry_http import RegistryError
from argosy.checkpoint.image_names import Repository
from argosy.checkpoint.registry_login import DOCKER_CONFIG, InvalidLoginError, Login, encoded, read_login
from argosy.checkpoint.store import CorruptCheckpointError, MissingObjectError, StoreError

USERNAME: Final = "REGISTRY_USERNAME"
PASSWORD: Final = "REGISTRY_PASSWORD"  # noqa: S105 - the name of a variable
_SECRET_KEYS: Final = ("username", "password", "registry", DOCKER_CONFIG)
_FULL = re.compile("no space left|quota exceeded|status 507", re.IGNORECASE)
_ATTEMPTS: Final = 6
_FIRST_PAUSE_SECONDS: Final = 0.2

T = TypeVar("T")


class RegistryConnection:
    """A client with an event loop of its own, in a thread that ends with the program."""

    def __init__(
        self, repository: Repository, login: Login | None, uri: str, authority: bytes | None = None
    ) -> None:
        self.repository = repository
        self.uri = uri
        self._login = login
        self._authority = authority
        self._loop = asyncio.new_event_loop()
        self._client: Registry | None = None
        self._lock = threading.Lock()

    def call(
        self, request: Callable[[Registry], Awaitable[T]], damage: Collection[str] = ("DigestMismatch",)
    ) -> T:
        """Return the answer to a request; raises StoreError.

        `damage` are the codes of errors that mean that the checkpoint is damaged, and not the registry.
        """
        with self._lock:
            if self._client is None:
                threading.Thread(target=self._loop.run_forever, name="argosy-registry", daemon=True).start()
                self._client = Registry(self.repository.registry, self._login, authority=self._authority)
        client = self._client
        try:
            return asyncio.run_coroutine_threadsafe(_repeat(client, request), self._loop).result()
        except RegistryError as error:
            raise self._store_error(error, damage) from None

    def get_blob(self, digest: str, max_bytes: int) -> bytes:
        """Return a small blob, whose digest is verified."""
        return self.call(
            lambda client: client.read_blob(self.repository, digest, max_bytes),
            damage=("DigestMismatch", "InvalidResponse"),
        )

    def push_blob(self, content: bytes, digest: str) -> None:
        self.call(lambda client: client.push_blob(self.repository, content, digest))

    def _store_error(self, error: RegistryError, damage: Collection[str]) -> StoreError:
        if error.code in damage:
            return CorruptCheckpointError(f"{self.uri}: {error.message}")
        if _FULL.search(error.message):
            problem = "no space left; delete checkpoints or enlarge the registry"
            return StoreError(f"{self.uri}: {problem} ({error.message})")
        match error.code:
            case "NotFound":
                return MissingObjectError(f"{self.uri}: {error.message}")
            case "Unauthorized" | "Denied":
                return StoreError(f"{self.uri}: access denied; check the credentials ({error.message})")
            case _:
                return StoreError(f"{self.uri}: {error.message}")


async def _repeat(client: Registry, request: Callable[[Registry], Awaitable[T]]) -> T:
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(_ATTEMPTS - 1):
        try:
            return await request(client)
        except RegistryError as error:
            # A registry keeps what it has received of each attempt, so more of them would fill it for good.
            if not error.is_temporary or _FULL.search(error.message):
                raise
        await asyncio.sleep(pause)
        pause *= 2
    return await request(client)


def find_login(host: str, credentials: Mapping[str, str]) -> Login | None:
    """Return the login for a registry, or None to use it without one; raises StoreError.

    It is in a Secret, in variables, or in the file that `docker login` writes to the folder DOCKER_CONFIG.
    """
    given = {**os.environ, **credentials}
    data = {name: credentials[name] for name in _SECRET_KEYS if name in credentials}
    if not data and USERNAME in given:
        data = {"username": given[USERNAME], "password": given.get(PASSWORD, "")}
    if not data and (config := _docker_config(given.get("DOCKER_CONFIG", ""))):
        data = {DOCKER_CONFIG: config}
    if not data:
        return None
    try:
        return read_login(encoded({name: value.encode() for name, value in data.items()}), host)
    except InvalidLoginError as error:
        if DOCKER_CONFIG in data and DOCKER_CONFIG not in credentials:
            return None  # `docker login` was done for other registries.
        raise StoreError(f"credentials: {error}") from None


def find_authority(credentials: Mapping[str, str]) -> bytes | None:
    """Return the certificates by which a registry is trusted; None: those of the system."""
    try:
        return read_authority(encoded({AUTHORITY: credentials.get(AUTHORITY, "").encode()}))
    except InvalidLoginError as error:
        raise StoreError(f"credentials: {error}") from None


def _docker_config(folder: str) -> str:
    try:
        return (Path(folder) / "config.json").read_text() if folder else ""
    except (OSError, UnicodeDecodeError):
        return ""
