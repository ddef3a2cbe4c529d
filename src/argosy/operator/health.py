"""`/healthz` (the process works), `/readyz` (its caches are filled) and `/metrics`, in plain HTTP."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from argosy.wire.messages import Handler, HttpError, Request, Response, text_response


def health_handler(registry: CollectorRegistry, not_ready: Callable[[], str]) -> Handler:
    """`not_ready` says what is still missing; empty when nothing is."""

    async def answer(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "there is nothing to change here")
        match request.path:
            case "/healthz":
                return text_response(200, "ok")
            case "/readyz":
                missing = not_ready()
                return text_response(503 if missing else 200, missing or "ok")
            case "/metrics":
                return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST.encode())
        raise HttpError(404, f"{request.path} is not served here")

    return answer
