"""A service outside of Kubernetes that counts, for the Toy kind."""

from collections.abc import Mapping

from msgspec import Struct

from argosy.plan.drivers import Credentials, Refusal

PASSWORD = b"open sesame"


class Increment(Struct, frozen=True):
    """Counts once for each request id, however often it is sent."""

    counter: str
    request_id: str


class Total(Struct, frozen=True):
    count: int


class Counter:
    """The service and its driver at once. The credentials are its password."""

    def __init__(self) -> None:
        self.requests: dict[str, list[str]] = {}
        """Request ids by counter, each as often as it was sent."""
        self.fetches: list[str] = []
        self.error: Exception | None = None

    def total(self, counter: str) -> int:
        return len(set(self.requests.get(counter, ())))

    async def call(self, request: Struct, credentials: Credentials) -> Struct:
        assert isinstance(request, Increment)
        self._check(credentials)
        self.requests.setdefault(request.counter, []).append(request.request_id)
        return Total(self.total(request.counter))

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        self.fetches.append(scope)
        self._check(credentials)
        return Total(self.total(scope))

    def _check(self, credentials: Mapping[str, bytes]) -> None:
        if self.error is not None:
            raise self.error
        if credentials.get("password") != PASSWORD:
            raise Refusal("WrongPassword", "the password is wrong")
