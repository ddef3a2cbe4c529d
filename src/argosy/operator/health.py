"""`/healthz` (the process works), `/readyz` (its caches are filled) and `/metrics`, in plain HTTP."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST


def health_application(registry: CollectorRegistry, not_ready: Callable[[], str]) -> web.Application:
    """`not_ready` says what is still missing; empty when nothing is."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        missing = not_ready()
        return web.Response(text=missing or "ok", status=503 if missing else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    return application
