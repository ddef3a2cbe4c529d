"""Tests for the responses to health probes and metrics scrapers."""

import pytest
from prometheus_client import CollectorRegistry, Counter

from argosy.operator.health import Check, CheckResult, HealthPaths, health_handler
from argosy.wire.client import Client
from argosy.wire.origin import Origin
from argosy.wire.server import Server

PASSED, FAILED = CheckResult(True, "synced"), CheckResult(False, "not synced: Pod")

CASES = {
    "liveness, caches synced: ok": ("GET", "/healthz", PASSED, 200, "ok"),
    "liveness, caches not synced: ok": ("GET", "/healthz", FAILED, 200, "ok"),
    "readiness, caches synced: ok": ("GET", "/readyz", PASSED, 200, "ok"),
    "readiness, caches not synced: failed check is named": (
        "GET",
        "/readyz",
        FAILED,
        503,
        "[-] caches: not synced: Pod",
    ),
    "verbose readiness, caches synced: all checks are named": (
        "GET",
        "/readyz?verbose",
        PASSED,
        200,
        "[+] caches: synced\n[+] lease: ours",
    ),
    "verbose readiness, caches not synced: all checks are named": (
        "GET",
        "/readyz?verbose",
        FAILED,
        503,
        "[-] caches: not synced: Pod\n[+] lease: ours",
    ),
    "metrics: exposed": ("GET", "/metrics", PASSED, 200, "# HELP tries_total How often.\n"),
    "unknown path: 404": ("GET", "/", PASSED, 404, "/ is not served here"),
    "POST: 405": ("POST", "/healthz", PASSED, 405, "there is nothing to change here"),
}


@pytest.mark.parametrize("case", CASES)
async def test_health_response(case: str) -> None:
    method, path, caches, want_status, want_text = CASES[case]
    registry = CollectorRegistry()
    Counter("tries", "How often.", registry=registry)
    ready = (Check("caches", lambda: caches), Check("lease", lambda: CheckResult(True, "ours")))
    server = Server(health_handler(HealthPaths(registry, [Check("workers", lambda: PASSED)], ready)))
    client = Client(Origin.from_url(f"http://127.0.0.1:{await server.listen_tcp('127.0.0.1', 0)}"))
    try:
        response = await client.send(method, path, {})
    finally:
        await client.close()
        await server.close(1)
    assert response.status == want_status
    assert response.body.decode().startswith(want_text)


async def test_failed_liveness_check_is_reported() -> None:
    server = Server(health_handler(HealthPaths(live=[Check("workers", lambda: CheckResult(False, "stuck"))])))
    client = Client(Origin.from_url(f"http://127.0.0.1:{await server.listen_tcp('127.0.0.1', 0)}"))
    try:
        response = await client.send("GET", "/healthz", {})
    finally:
        await client.close()
        await server.close(1)
    assert (response.status, response.body) == (503, b"[-] workers: stuck")


PARTS = {
    "metrics only: no probes": (
        HealthPaths(CollectorRegistry()),
        {"/metrics": 200, "/healthz": 404, "/readyz": 404},
    ),
    "probes only: no metrics": (
        HealthPaths(live=[Check("workers", lambda: PASSED)], ready=[Check("caches", lambda: PASSED)]),
        {"/metrics": 404, "/healthz": 200, "/readyz": 200},
    ),
}


@pytest.mark.parametrize(("paths", "want"), PARTS.values(), ids=PARTS.keys())
async def test_address_serves_only_its_paths(paths: HealthPaths, want: dict[str, int]) -> None:
    server = Server(health_handler(paths))
    client = Client(Origin.from_url(f"http://127.0.0.1:{await server.listen_tcp('127.0.0.1', 0)}"))
    try:
        assert {path: (await client.send("GET", path, {})).status for path in want} == want
    finally:
        await client.close()
        await server.close(1)
