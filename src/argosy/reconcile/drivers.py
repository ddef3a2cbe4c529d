"""Makes calls outside of Kubernetes by drivers, with credentials that are read when they are needed.

Credentials are references to Secrets. A Secret is read by `get` for each call and each fetch, and its content
is passed to the driver and nowhere else. The operator may read Secrets that the author of an object may not
read; so an object uses Secrets of its own namespace, and those of another one only if the Secret's annotation
allows that. A Secret that does not exist and one that may not be used are answered alike, so that nobody
learns by the operator what another namespace contains.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, Forbidden, LeaseExpired, NotFound
from argosy.kinds import labels
from argosy.kinds.kubernetes import Secret
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import Call, CallResult, CallStatus, SecretRef
from argosy.plan.contract import View
from argosy.plan.drivers import SECRET, Closable, Credentials, Driver, Refusal, SecretContent

MAX_CALL_SECONDS = 60.0
"""The longest that a call or a fetch may take, whatever its own limit is."""


class NoCredentialsError(Exception):
    """A Secret does not exist, or may not be used by objects of this namespace."""


class Drivers:
    """The drivers of all kinds by name, and what they are given."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._drivers: dict[str, Driver] = {SECRET: _SecretDriver()}

    def add(self, drivers: Mapping[str, Driver]) -> None:
        """Register the drivers of a kind. Kinds that use the same driver register the same object."""
        for name, driver in drivers.items():
            if self._drivers.setdefault(name, driver) is not driver:
                raise ValueError(f"there are two different drivers of the name {name}")

    async def close(self) -> None:
        """Close the connections of all drivers; they are opened again when they are needed."""
        for driver in self._drivers.values():
            if isinstance(driver, Closable):
                await driver.close()

    async def run(self, namespace: str, call: Call) -> CallResult:
        """Make a call for an object of a namespace. Only the loss of the Lease is raised."""

        def failure(status: CallStatus, message: str, code: str = "") -> CallResult:
            return CallResult(call.key, status, None, code, truncate(message, MAX_MESSAGE_CHARS))

        seconds = min(call.timeout_seconds, MAX_CALL_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                refs = {"": call.credentials} if call.credentials else {}
                credentials = await self._credentials(namespace, {**refs, **call.secrets})
                self._client.check_lease()
                value = await self._driver(call.driver).call(call.request, credentials)
        except NoCredentialsError as error:
            return failure(CallStatus.NO_CREDENTIALS, str(error))
        except Refusal as refusal:
            message = truncate(refusal.message, MAX_MESSAGE_CHARS)
            return CallResult(call.key, CallStatus.REFUSED, refusal.value, refusal.code, message)
        except LeaseExpired:
            raise
        except ApiError as error:
            return failure(CallStatus.UNAVAILABLE, error.message or error.reason)
        except TimeoutError:
            return failure(CallStatus.UNAVAILABLE, f"{call.driver}: no answer within {seconds:g} s")
        except OSError as error:
            return failure(CallStatus.UNAVAILABLE, f"{call.driver}: {error}")
        return CallResult(call.key, value=value)

    async def fetch(self, namespace: str, view: View) -> Struct:
        """Return the value of a view for objects of a namespace; raises what the driver raises."""
        async with asyncio.timeout(MAX_CALL_SECONDS):
            refs = {"": view.credentials} if view.credentials else {}
            credentials = await self._credentials(namespace, refs)
            return await self._driver(view.driver).fetch(view.scope, credentials)

    def _driver(self, name: str) -> Driver:
        driver = self._drivers.get(name)
        if driver is None:
            raise Refusal("UnknownDriver", f"there is no driver {name}")
        return driver

    async def _credentials(self, namespace: str, refs: Mapping[str, SecretRef]) -> Credentials:
        content: dict[str, bytes] = {}
        for role, ref in refs.items():
            prefix = f"{role}/" if role else ""
            secret = await self._secret(namespace, ref)
            content |= {f"{prefix}{key}": _decode(value) for key, value in secret.data.items()}
        return content

    async def _secret(self, namespace: str, ref: SecretRef) -> Secret:
        """Return the Secret, if objects of this namespace may use it."""
        where = ref.namespace or namespace
        try:
            secret = await self._client.get(Secret, ref.name, where)
        except (NotFound, Forbidden):
            secret = None
        if where == namespace:
            if secret is None:
                raise NoCredentialsError(f"secret {where}/{ref.name} not found")
            return secret
        if secret is None or not _allows(secret, namespace):
            raise NoCredentialsError(
                f"secret {where}/{ref.name} not found, or not shared with namespace {namespace} by its"
                f" annotation {labels.ALLOWED_NAMESPACES}"
            )
        return secret


def _allows(secret: Secret, namespace: str) -> bool:
    listed = secret.metadata.annotations.get(labels.ALLOWED_NAMESPACES, "")
    return not {"*", namespace}.isdisjoint(name.strip() for name in listed.split(","))


def _decode(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except (binascii.Error, ValueError):
        return b""


class _SecretDriver:
    """Shows the content of a Secret to those who wait for it."""

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        raise Refusal("NotSupported", "a Secret is only read")

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        return SecretContent(dict(credentials))
