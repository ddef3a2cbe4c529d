"""The operator's endpoint as seen from a pod: one GET with back-off, over TLS with the pod's CA.

Everything that may heal (the operator restarts, its service has no address yet, a proxy answers 502) is tried
again until the deadline; what cannot heal (a wrong token, an unknown job or role) is refused at once.
"""

import json
import os
import random
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Self
from urllib.parse import quote, urlencode

LONGEST_PAUSE = 10.0


class RefusedError(Exception):
    """The operator answered, and asking again would not change the answer."""


class TooLateError(Exception):
    """The deadline passed."""


class Endpoint:
    def __init__(self, url: str, token: str, ca: str, namespace: str, job: str) -> None:
        self.base = f"{url.rstrip('/')}/v1/jobs/{quote(namespace)}/{quote(job)}"
        self.token = token
        tls = ssl.create_default_context(cadata=ca) if ca else ssl.create_default_context()
        # No proxy of the user's environment stands between a pod and its own cluster.
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        def needed(name: str) -> str:
            if not environ.get(name):
                raise RefusedError(f"{name} is not set: this command runs in a container that Argosy made")
            return environ[name]

        return cls(
            needed("ARGOSY_URL"),
            needed("ARGOSY_TOKEN"),
            environ.get("ARGOSY_CA", ""),
            needed("ARGOSY_NAMESPACE"),
            needed("ARGOSY_JOB"),
        )

    def get(
        self, path: str, query: Mapping[str, str], deadline: float | None, timeout: float = 45.0
    ) -> bytes:
        """The body of a 200 answer; `deadline` is on the monotonic clock."""
        url = f"{self.base}/{path}?{urlencode(query)}"
        pause = 0.25
        while True:
            left = timeout if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TooLateError
            try:
                return self._ask(url, min(timeout, max(left, 1.0)))
            except urllib.error.HTTPError as error:
                problem = f"{error.code} {_message(error)}"
                if error.code in (400, 401, 403, 404, 405):
                    raise RefusedError(problem) from None
            except (OSError, ValueError) as error:
                if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                    raise RefusedError(
                        f"the operator's certificate is not signed by the CA of this pod: {error}"
                    ) from None
                problem = str(error)
            pause = min(pause * 2, LONGEST_PAUSE)
            rest = pause * (0.5 + random.random() / 2)  # noqa: S311 - spreads retries, guards nothing
            if deadline is not None:
                rest = min(rest, max(deadline - time.monotonic(), 0.0))
            print(
                f"argosy: the operator does not answer ({problem}); asking again in {rest:.1f} s",
                file=sys.stderr,
            )
            time.sleep(rest)

    def get_json(self, path: str, query: Mapping[str, str], deadline: float | None) -> dict[str, object]:
        answer = json.loads(self.get(path, query, deadline))
        if not isinstance(answer, dict):
            raise RefusedError(f"the operator answered something unexpected: {answer!r}")
        return answer

    def _ask(self, url: str, timeout: float) -> bytes:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})  # noqa: S310 - our own url
        with self.opener.open(request, timeout=timeout) as answer:
            body: bytes = answer.read()
            return body


def _message(error: urllib.error.HTTPError) -> str:
    try:
        body = json.loads(error.read())
        return str(body.get("message", error.reason))
    except (ValueError, AttributeError, OSError):
        return str(error.reason)
