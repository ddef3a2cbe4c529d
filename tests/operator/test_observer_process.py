"""Tests for an observer next to an operator, from start to shutdown, against both API servers."""

import asyncio
import json
from dataclasses import replace

from argosy.engine.dynamic import dynamic_kind
from argosy.kinds.aresjob import AresJob, AresJobCrd
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.operator.apis.ares.api import ares_api
from argosy.operator.apis.ares.settings import AresSettings, ObserverService, observer_settings
from argosy.wire.client import Client, Response
from argosy.wire.origin import Origin
from tests.support.aresjobs import job
from tests.support.operator_harness import Scene, until_served
from tests.support.servers import free_port

Stored = dynamic_kind(AresJob.resource)
SETTINGS = AresSettings(observers=ObserverService(require_tokens=False), require_tokens=False)


async def ask(port: int, path: str, **headers: str) -> Response | None:
    """Return the response to a GET; None while the observer does not listen."""
    client = Client(Origin.from_url(f"http://127.0.0.1:{port}"))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        return await client.send("GET", path, named, timeout=20)
    except ConnectionError:
        return None
    finally:
        await client.close()


async def test_observer_becomes_ready_and_answers_waiting_requests_when_it_stops(scene: Scene) -> None:
    """ready only when synced; drains on SIGTERM; in plain HTTP for clients of the original"""
    await scene.client.apply(CustomResourceDefinition, crd_for(AresJobCrd), force=True)
    await until_served(scene.client, Stored, scene.namespace)
    body = {"metadata": {"name": "job"}, "spec": job(roles={"worker": {}}).spec}
    await scene.client.create(Stored, body, scene.namespace)
    port, key = free_port(), f"/cache/keys/{scene.namespace}.job"
    settings = scene.settings(apis=(ares_api(SETTINGS),))
    observing = replace(observer_settings(settings, "none", None), http_endpoint=f"127.0.0.1:{port}")
    async with scene.run_operator(settings), scene.run_operator(observing) as observer:

        async def ready() -> bool:
            answer = await ask(port, "/cache/ping")
            return answer is not None and answer.status == 200

        async def is_reported() -> bool:
            answer = await ask(port, key)
            return answer is not None and "worker" in json.loads(answer.body)

        await scene.until("the observer is ready", ready)
        await scene.until("it knows the role", is_reported)
        response = await ask(port, key)
        assert response is not None
        held = asyncio.create_task(ask(port, f"{key}?wait=20", If_None_Match=response.headers["etag"]))
        await asyncio.sleep(0)
        await scene.until("the waiting request has been received", lambda: _is_answered(port))
        scene.operators.remove(observer)
        observer.cancel()
        answer = await held
    assert answer is not None
    assert answer.status in (200, 304)


async def _is_answered(port: int) -> bool:
    """Return True if a request is answered; earlier requests have been received by then."""
    return await ask(port, "/cache/ping") is not None
