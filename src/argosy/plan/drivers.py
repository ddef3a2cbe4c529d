"""The interface of drivers, which do the input and output outside of Kubernetes for `Call` and `View`."""

from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

from argosy.plan.actions import SecretRef
from argosy.plan.contract import View

Credentials = Mapping[str, bytes]
"""The content of the Secrets that a call names; see `Call.secrets`. Never stored or logged."""


class Driver(Protocol):
    """Speaks to one service.

    What the service refuses is raised as `Refusal`. `OSError` and `TimeoutError` mean that it did not answer,
    or that it said to try again. A driver whose requests cost money checks right before it sends one that
    this process may still write (`engine.client.Client.check_lease`).
    """

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        """Do what a `Call` asks for, and return what its result shall contain."""

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        """Return the value of a `View`. Values are compared to find out what has changed."""


@runtime_checkable
class Closable(Protocol):
    """A driver with connections that are closed when this replica stops leading."""

    async def close(self) -> None: ...


class Refusal(Exception):  # noqa: N818 - an answer, not an error of ours
    """The service answered and did not do what was asked."""

    def __init__(self, code: str, message: str, value: Struct | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.value = value


SECRET: Final = "secret"  # noqa: S105
"""The driver of views of Secrets, which every operator has."""

SECRET_SECONDS: Final = 5.0
"""How often a Secret is read that somebody waits for."""


class SecretContent(Struct, frozen=True):
    """The value of a view of a Secret. It is held in memory only, and not shown in messages."""

    data: Mapping[str, bytes]

    def __repr__(self) -> str:
        return f"SecretContent({', '.join(sorted(self.data))})"


def secret_view(ref: SecretRef) -> View:
    """Return the view of a Secret: its content as `SecretContent`, or the problem that it cannot be read."""
    return View(SECRET, "", SECRET_SECONDS, ref)
