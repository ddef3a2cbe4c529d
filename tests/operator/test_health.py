"""What probes and scrapers see, over plain HTTP."""

import pytest
from prometheus_client import CollectorRegistry, Counter

from argosy.operator.health import health_handler
from argosy.wire.client import Client
from argosy.wire.origin import Origin
from argosy.wire.server import Server

CASES = {
    "a process that works is healthy": ("GET", "/healthz", "", 200, "ok"),
    "one whose caches fill is healthy too": ("GET", "/healthz", "not yet seen: Pod", 200, "ok"),
    "one whose caches are filled is ready": ("GET", "/readyz", "", 200, "ok"),
    "what is missing is named": ("GET", "/readyz", "not yet seen: Pod", 503, "not yet seen: Pod"),
    "metrics are told": ("GET", "/metrics", "", 200, "tries_total 0.0"),
    "nothing else is there": ("GET", "/", "", 404, "/ is not served here"),
    "nothing can be changed": ("POST", "/healthz", "", 405, "nothing to change"),
}


@pytest.mark.parametrize("sentence", CASES)
async def test_what_is_answered(sentence: str) -> None:
    method, path, missing, want_status, want_text = CASES[sentence]
    registry = CollectorRegistry()
    Counter("tries", "How often.", registry=registry)
    server = Server(health_handler(registry, lambda: missing))
    client = Client(Origin.from_url(f"http://127.0.0.1:{await server.listen_tcp('127.0.0.1', 0)}"))
    try:
        answer = await client.send(method, path, {})
    finally:
        await client.close()
        await server.close(1)
    assert answer.status == want_status
    assert want_text in answer.body.decode()
