"""The operator's endpoint as seen from a pod: a GET with back-off and a POST, over TLS with the pod's CA.

Everything that may heal (the operator restarts, its service has no address yet, a proxy answers 502) is tried
again until the deadline; what cannot heal (a wrong token, an unknown job or role) fails at once.
The token goes to the operator's own address and nowhere else: no proxy, no redirection is followed.
"""

import json
import os
import random
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from argosy.helper.errors import DeadlineExceededError, RejectedError

TIMEOUT_SECONDS = 45.0
"""Seconds for one answer, which may be held back for most of them."""
MAX_PAUSE_SECONDS = 10.0
MAX_RESPONSE_BYTES = 64 * 1024 * 1024

R = TypeVar("R")


class Endpoint:
    def __init__(self, url: str, token: str, ca: str, namespace: str, job: str) -> None:
        self.address = urlsplit(url)
        if self.address.scheme not in ("http", "https") or not self.address.hostname:
            raise RejectedError(f"ARGOSY_URL {url!r} is not the address of an operator")
        self.base = f"{self.address.path.rstrip('/')}/v1/jobs/{quote(namespace, '')}/{quote(job, '')}"
        self.token = token
        self.ca = ca

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        def needed(name: str) -> str:
            if not environ.get(name):
                raise RejectedError(f"{name} is not set: this command runs in a container that Argosy made")
            return environ[name]

        return cls(
            needed("ARGOSY_URL"),
            needed("ARGOSY_TOKEN"),
            environ.get("ARGOSY_CA", ""),
            needed("ARGOSY_NAMESPACE"),
            needed("ARGOSY_JOB"),
        )

    def get_json(self, path: str, query: Mapping[str, str], deadline: float | None) -> dict[str, object]:
        return self.get(path, query, deadline, _json)

    def post_json(self, path: str, body: Mapping[str, object], timeout: float) -> str:
        """Send a body once; return why it was not accepted, or an empty string."""
        try:
            status, answer = self._request("POST", f"{self.base}/{path}", timeout, json.dumps(body).encode())
        except (OSError, HTTPException) as error:
            return str(error) or type(error).__name__
        return "" if status == 200 else f"{status} {_message(answer)}"

    def get(
        self,
        path: str,
        query: Mapping[str, str],
        deadline: float | None,
        read: Callable[[bytes], R | None],
    ) -> R:
        """`read` gives None for a body that is not the operator's: somebody in between answered."""
        target = f"{self.base}/{path}?{urlencode(query)}"
        pause = 0.25
        while True:
            left = TIMEOUT_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceededError
            try:
                status, body = self._request("GET", target, min(TIMEOUT_SECONDS, max(left, 1.0)))
            except (OSError, HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise RejectedError(
                        f"the operator's certificate is not signed by the CA of this pod: {error}"
                    ) from None
                problem = str(error) or type(error).__name__
            else:
                if status == 200 and (answer := read(body)) is not None:
                    return answer
                problem = f"{status} {_message(body)}" if status != 200 else "a body that cannot be read"
                if status in (400, 401, 403, 404, 405):
                    raise RejectedError(problem)
            pause = min(pause * 2, MAX_PAUSE_SECONDS)
            rest = pause * (0.5 + random.random() / 2)  # noqa: S311 - spreads retries, guards nothing
            if deadline is not None:
                rest = min(rest, max(deadline - time.monotonic(), 0.0))
            print(
                f"argosy: the operator does not answer ({problem}); asking again in {rest:.1f} s",
                file=sys.stderr,
            )
            time.sleep(rest)

    def _request(
        self, method: str, target: str, timeout: float, body: bytes | None = None
    ) -> tuple[int, bytes]:
        connection = self._connection(timeout)
        try:
            connection.request(method, target, body, {"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_RESPONSE_BYTES)
        finally:
            connection.close()

    def _connection(self, timeout: float) -> HTTPConnection:
        host, port = self.address.hostname or "", self.address.port
        if self.address.scheme == "http":
            return HTTPConnection(host, port, timeout=timeout)
        tls = ssl.create_default_context(cadata=self.ca or None)
        return HTTPSConnection(host, port, timeout=timeout, context=tls)


def _json(body: bytes) -> dict[str, object] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _message(body: bytes) -> str:
    return str((_json(body) or {}).get("message", "without a reason"))
