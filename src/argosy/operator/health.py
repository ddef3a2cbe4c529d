"""`/healthz`, `/readyz` and `/metrics`, in plain HTTP, at one address or at two.

A replica is healthy if a restart would not help, and ready if it could do its part now. Both consist of named
checks: the response (503) has the failed ones with their reasons, and with `?verbose` all of them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from argosy.wire.messages import Handler, HttpError, Request, Response, text_response


class CheckResult(NamedTuple):
    ok: bool
    message: str


class Check(NamedTuple):
    name: str
    run: Callable[[], CheckResult]


class HealthPaths(NamedTuple):
    """What is answered at one address; what is empty is not served there."""

    registry: CollectorRegistry | None = None
    live: Sequence[Check] = ()
    ready: Sequence[Check] = ()


def health_handler(shown: HealthPaths) -> Handler:
    async def answer(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "there is nothing to change here")
        match request.path:
            case "/healthz" if shown.live:
                return _run_checks(shown.live, verbose="verbose" in request.query)
            case "/readyz" if shown.ready:
                return _run_checks(shown.ready, verbose="verbose" in request.query)
            case "/metrics" if shown.registry:
                return Response(generate_latest(shown.registry), content_type=CONTENT_TYPE_LATEST.encode())
        raise HttpError(404, f"{request.path} is not served here")

    return answer


def _run_checks(checks: Sequence[Check], *, verbose: bool) -> Response:
    results = [(check.name, *check.run()) for check in checks]
    passed = all(ok for _, ok, _ in results)
    lines = [
        f"[{'+' if ok else '-'}] {name}: {message}" for name, ok, message in results if verbose or not ok
    ]
    return text_response(200 if passed else 503, "\n".join(lines) or "ok")
