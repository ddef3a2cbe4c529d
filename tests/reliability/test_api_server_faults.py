"""Tests for faults of a real API server: restarts, throttling, expired tokens and unreachable webhooks.

Jobs succeed nevertheless, and status says what they wait for.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from argosy.engine.errors import NotFound
from argosy.kinds.kubernetes import ServiceAccount
from argosy.kinds.webhooks import ValidatingWebhookConfiguration
from argosy.local.apiserver.kubeconfig import write_kubeconfig
from argosy.local.apiserver.store import Store
from argosy.local.apiserver.tokens import Signer
from tests.support.captured_logs import captured_lines
from tests.support.faults import (
    LEVEL,
    SCHEMA,
    bind,
    count_responses,
    endless_job,
    grant_all_rights,
    short_job,
    wait_until_running,
    wait_until_succeeded,
)
from tests.support.killable_apiserver import KillableApiServer
from tests.support.operator_harness import Scene, shown_at
from tests.support.servers import READER, free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.mark.parametrize("part", [pytest.param("kube-apiserver", marks=pytest.mark.long), "etcd"])
async def test_jobs_succeed_when_a_control_plane_component_restarts(
    killable_apiserver: KillableApiServer, scene: Scene, part: str
) -> None:
    with captured_lines():
        async with scene.operator() as operator:
            await scene.apply(endless_job("stays"))
            before = await wait_until_running(scene, "stays")
            for number in range(3):
                await scene.apply(short_job(f"job-{number}"))
            killable_apiserver.kill(part)
            await asyncio.sleep(1)  # the outage itself
            await killable_apiserver.revive()
            await scene.apply(short_job("job-3"))
            await wait_until_succeeded(scene, *(f"job-{number}" for number in range(4)))
            assert await wait_until_running(scene, "stays") == before
            assert not operator.done()


async def test_operator_backs_off_when_the_api_server_throttles(scene: Scene) -> None:
    """API priority and fairness leaves the operator one seat: most requests of a burst get 429."""
    kubeconfig, port = await grant_all_rights(scene, READER), free_port()
    limited = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    await scene.client.apply(
        LEVEL, {"metadata": {"name": "hardly"}, "spec": {"type": "Limited", "limited": limited}}, force=True
    )
    rule = {
        "subjects": [{"kind": "User", "user": {"name": READER.name}}],
        "resourceRules": [
            {
                "verbs": ["create", "update", "patch", "delete"],
                "apiGroups": ["*"],
                "resources": ["*"],
                "clusterScope": True,
                "namespaces": ["*"],
            }
        ],
    }
    spec = {"priorityLevelConfiguration": {"name": "hardly"}, "matchingPrecedence": 100, "rules": [rule]}
    await scene.client.apply(SCHEMA, {"metadata": {"name": "hardly"}, "spec": spec}, force=True)
    try:
        async with scene.operator(kubeconfig=kubeconfig, **shown_at(port)):
            await scene.apply(short_job("first"))
            await wait_until_succeeded(scene, "first")
            throttled = 0.0
            for burst in range(5):  # the API server may begin to throttle late
                jobs = [f"job-{burst}-{number}" for number in range(8)]
                await asyncio.gather(*(scene.apply(short_job(name, 4)) for name in jobs))
                await wait_until_succeeded(scene, *jobs)
                throttled = await count_responses(port, "429")
                if throttled:
                    break
            assert throttled > 0
    finally:
        for kind in (SCHEMA, LEVEL):
            await scene.client.delete(kind, "hardly")


async def test_expired_token_is_reported_and_its_successor_used(scene: Scene, tmp_path: Path) -> None:
    name, port = "operator", free_port()
    account = await scene.client.create(ServiceAccount, {"metadata": {"name": name}}, scene.namespace)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": scene.namespace}
    await bind(scene.client, f"all-for-{scene.namespace}", subject)
    meta = {"name": name, "namespace": scene.namespace, "uid": account.metadata.uid}
    token, signer = tmp_path / "token", Signer(scene.server.folder / "pki" / "sa.key", cast("Store", None))

    def sign(seconds: int) -> None:
        token.write_text(signer.sign({"metadata": meta}, [], seconds, None)[0])

    sign(-53)  # Go's reader of tokens gives them a minute more
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, scene.server.url, scene.server.ca_file, "")
    config = msgspec.json.decode(kubeconfig.read_bytes())
    config["users"][0]["user"] = {"tokenFile": str(token)}
    kubeconfig.write_bytes(msgspec.json.encode(config))
    with captured_lines() as lines:
        async with scene.operator(kubeconfig=kubeconfig, **shown_at(port)) as operator:
            await scene.apply(short_job("before"))
            await wait_until_succeeded(scene, "before")
            for number in range(1000):  # the API server believes a token for ten seconds once it has seen it
                if await count_responses(port, "401"):
                    break
                await scene.apply(short_job(f"job-{number}", 1))
                await asyncio.sleep(1)
            await scene.apply(short_job("meanwhile"))
            assert not operator.done()
            sign(3600)
            await wait_until_succeeded(scene, "meanwhile", *(f"job-{index}" for index in range(number)))
    assert any("401" in str(line.get("error")) for line in lines)


async def test_unreachable_webhook_is_named_in_status(scene: Scene) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        held.discard(writer)

    held: set[asyncio.StreamWriter] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
        held.add(writer)
        return hold(reader, writer)

    silent = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    webhook = {
        "name": "silent.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
    }
    name = f"silent-{scene.namespace}"
    async with silent:
        await scene.client.create(
            ValidatingWebhookConfiguration, {"metadata": {"name": name}, "webhooks": [webhook]}
        )
        try:
            async with scene.operator():
                await asyncio.sleep(0.5)  # until the API server asks it
                await scene.apply(short_job("job"))

                async def is_named() -> bool:
                    return "silent.example.com" in (await scene.run("job")).status.message

                await scene.until("status names the webhook", is_named)
                assert not await scene.pods()
                await scene.client.delete(ValidatingWebhookConfiguration, name)
                await wait_until_succeeded(scene, "job")
        finally:
            with contextlib.suppress(NotFound):
                await scene.client.delete(ValidatingWebhookConfiguration, name)
        for writer in held:
            writer.transport.abort()
        await eventually(lambda: not held)
