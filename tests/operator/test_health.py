"""What probes and scrapers see, over plain HTTP."""

import pytest
from prometheus_client import CollectorRegistry, Counter

from argosy.operator.health import Check, CheckResult, HealthPaths, health_handler
from argosy.wire.client import Client
from argosy.wire.origin import Origin
from argosy.wire.server import Server

WELL, ILL = CheckResult(True, "all is filled"), CheckResult(False, "not synced: Pod")

CASES = {
    "a process that works is healthy": ("GET", "/healthz", WELL, 200, "ok"),
    "one whose caches fill is healthy too": ("GET", "/healthz", ILL, 200, "ok"),
    "one whose caches are filled is ready": ("GET", "/readyz", WELL, 200, "ok"),
    "what is missing is named": ("GET", "/readyz", ILL, 503, "[-] caches: not synced: Pod"),
    "who asks is told all": (
        "GET",
        "/readyz?verbose",
        WELL,
        200,
        "[+] caches: all is filled\n[+] lease: ours",
    ),
    "and what is well beside what is not": (
        "GET",
        "/readyz?verbose",
        ILL,
        503,
        "[-] caches: not synced: Pod\n[+] lease: ours",
    ),
    "metrics are told": ("GET", "/metrics", WELL, 200, "# HELP tries_total How often.\n"),
    "nothing else is there": ("GET", "/", WELL, 404, "/ is not served here"),
    "nothing can be changed": ("POST", "/healthz", WELL, 405, "there is nothing to change here"),
}


@pytest.mark.parametrize("sentence", CASES)
async def test_what_is_answered(sentence: str) -> None:
    method, path, caches, want_status, want_text = CASES[sentence]
    registry = CollectorRegistry()
    Counter("tries", "How often.", registry=registry)
    ready = (Check("caches", lambda: caches), Check("lease", lambda: CheckResult(True, "ours")))
    server = Server(health_handler(HealthPaths(registry, [Check("workers", lambda: WELL)], ready)))
    client = Client(Origin.from_url(f"http://127.0.0.1:{await server.listen_tcp('127.0.0.1', 0)}"))
    try:
        answer = await client.send(method, path, {})
    finally:
        await client.close()
        await server.close(1)
    assert answer.status == want_status
    assert answer.body.decode().startswith(want_text)


async def test_a_failed_check_of_health_is_told() -> None:
    server = Server(health_handler(HealthPaths(live=[Check("workers", lambda: CheckResult(False, "stuck"))])))
    client = Client(Origin.from_url(f"http://127.0.0.1:{await server.listen_tcp('127.0.0.1', 0)}"))
    try:
        answer = await client.send("GET", "/healthz", {})
    finally:
        await client.close()
        await server.close(1)
    assert (answer.status, answer.body) == (503, b"[-] workers: stuck")


PARTS = {
    "metrics alone": (HealthPaths(CollectorRegistry()), {"/metrics": 200, "/healthz": 404, "/readyz": 404}),
    "probes alone": (
        HealthPaths(live=[Check("workers", lambda: WELL)], ready=[Check("caches", lambda: WELL)]),
        {"/metrics": 404, "/healthz": 200, "/readyz": 200},
    ),
}


@pytest.mark.parametrize("sentence", PARTS)
async def test_each_address_tells_its_part(sentence: str) -> None:
    shown, wanted = PARTS[sentence]
    server = Server(health_handler(shown))
    client = Client(Origin.from_url(f"http://127.0.0.1:{await server.listen_tcp('127.0.0.1', 0)}"))
    try:
        assert {path: (await client.send("GET", path, {})).status for path in wanted} == wanted
    finally:
        await client.close()
        await server.close(1)
