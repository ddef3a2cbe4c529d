"""Tests for the webhooks of AresJobs, called by a real API server over TLS."""

import secrets
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

import pytest

from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import Invalid
from argosy.engine.kubeconfig import Connection
from argosy.kinds.aresjob import AresJob, AresJobCrd
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace
from argosy.kinds.meta import Json
from argosy.operator import credentials, webhooks
from argosy.operator.apis.ares.api import ARES
from argosy.operator.credentials import SecretStore, rotate
from argosy.operator.settings import NAME
from tests.support.aresjobs import job
from tests.support.operator_harness import Scene, until_served
from tests.support.servers import Server, free_port
from tests.support.webhooks import ca_bundles, configuration_name, configured_webhooks

Stored = dynamic_kind(AresJob.resource)


@pytest.fixture
async def scene(real_apiserver: Server) -> AsyncIterator[tuple[Scene, int]]:
    """Yield a scene whose API server calls webhooks at the port."""
    port, namespace = free_port(), f"asked-{secrets.token_hex(4)}"
    async with Client(Connection.from_kubeconfig(real_apiserver.kubeconfig)) as client:
        await client.create(Namespace, {"metadata": {"name": namespace}})
        await client.apply(CustomResourceDefinition, crd_for(AresJobCrd), force=True)
        await until_served(client, Stored, namespace)
        async with configured_webhooks(client, port, namespace, {"ares": True}):
            yield Scene(client, real_apiserver, namespace), port


def body(namespace: str, **roles: Json) -> Json:
    return {"metadata": {"name": "job", "namespace": namespace}, "spec": job(roles=roles).spec}


async def test_webhooks_reject_invalid_jobs_and_set_defaults_of_valid_ones(
    scene: tuple[Scene, int],
) -> None:
    stage, port = scene
    name = configuration_name(stage.namespace)
    async with stage.operator(endpoint=f"127.0.0.1:{port}", webhooks=name, apis=(ARES,)):

        async def has_bundles() -> bool:
            return all(await ca_bundles(stage.client, stage.namespace))

        await stage.until("the webhooks know our authority", has_bundles)
        wrong = body(stage.namespace, worker={"replicas": 0})
        with pytest.raises(Invalid) as refused:
            await stage.client.create(Stored, wrong, stage.namespace)
        assert 'admission webhook "varesjob.ares.io" denied the request' in str(refused.value)
        assert "spec.roleSpecs.worker.replicas: invalid value 0" in str(refused.value)
        created = await stage.client.create(Stored, body(stage.namespace, worker={}), stage.namespace)
        stored = cast("dict[str, Json]", created.raw["spec"])
        assert stored["runPolicy"]["cleanPodPolicy"] == "None", "the answer to its own writing shows it"
        edit = {"spec": {"roleSpecs": {"worker": {"replicas": 100_000}}}}
        with pytest.raises(Invalid, match="invalid value 100000"):
            await stage.client.patch(Stored, "job", edit, stage.namespace)
        await stage.client.delete(Stored, "job", stage.namespace)


async def test_no_job_is_rejected_while_the_authority_is_rotated_twice(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server calls any replica, whether it has reloaded its certificate or not."""
    monkeypatch.setattr(credentials, "CHECK_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(credentials, "TOKEN_KEY_DELAY", timedelta(0))
    monkeypatch.setattr(webhooks, "CHECK_INTERVAL_SECONDS", 0.05)
    stage, port = scene
    name = configuration_name(stage.namespace)
    store = SecretStore(stage.client, stage.namespace, f"{NAME}-tls")
    common: dict[str, object] = {"webhooks": name, "apis": (ARES,), "leader_elect": True}
    async with (
        stage.operator(**common, identity="leader", endpoint=f"127.0.0.1:{port}"),
        stage.operator(**common, identity="standby"),
    ):

        async def bundle_is_current() -> bool:
            """Create a job each time, which fails if the webhook cannot be called."""
            trust, _ = await store.read()
            stored = await ca_bundles(stage.client, stage.namespace)
            if trust is None or "" in stored:
                return False
            await stage.client.create(Stored, body(stage.namespace, worker={}), stage.namespace)
            await stage.client.delete(Stored, "job", stage.namespace)
            return stored == {b64encode(trust.ca.encode()).decode()}

        await stage.until("the webhooks know our authority", bundle_is_current)
        for _ in range(2):
            await rotate(store, SystemClock(), ca=True)
            await stage.until("the webhooks know the new authority", bundle_is_current)
