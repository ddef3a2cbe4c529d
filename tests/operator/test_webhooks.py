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
from argosy.install.chart import Chart, chart_folder
from argosy.kinds.aresjob import AresJob, AresJobCrd
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace
from argosy.kinds.meta import Json
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from argosy.operator import credentials, webhooks
from argosy.operator.apis.ares.api import ARES
from argosy.operator.credentials import SecretStore, rotate
from argosy.operator.settings import NAME
from tests.support.aresjobs import job
from tests.support.operator_harness import Scene, until_served
from tests.support.servers import Server, free_port

Stored = dynamic_kind(AresJob.resource)
KINDS = {
    kind.resource.kind: dynamic_kind(kind.resource)
    for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)
}


def configurations(port: int, namespace: str) -> list[Json]:
    """Return the configurations of the chart, with the address of an operator that is not a pod."""
    chart = Chart(chart_folder())
    values = chart.values({"name": namespace, "webhooks": {"enabled": True}, "watchNamespace": namespace})
    configured = [obj for obj in chart.objects("home", values) if "webhooks" in obj]
    for configuration in configured:
        (webhook,) = cast("list[dict[str, Json]]", configuration["webhooks"])
        service = cast("Json", webhook["clientConfig"].pop("service"))
        webhook["clientConfig"]["url"] = f"https://localhost:{port}{service['path']}"
    return configured


@pytest.fixture
async def scene(real_apiserver: Server) -> AsyncIterator[tuple[Scene, int]]:
    """Yield a scene whose API server calls webhooks at the port."""
    port, namespace = free_port(), f"asked-{secrets.token_hex(4)}"
    async with Client(Connection.from_kubeconfig(real_apiserver.kubeconfig)) as client:
        await client.create(Namespace, {"metadata": {"name": namespace}})
        await client.apply(CustomResourceDefinition, crd_for(AresJobCrd), force=True)
        await until_served(client, Stored, namespace)
        created = configurations(port, namespace)
        for configuration in created:
            await client.create(KINDS[str(configuration["kind"])], configuration)
        yield Scene(client, real_apiserver, namespace), port
        for configuration in created:
            await client.delete(
                KINDS[str(configuration["kind"])], str(cast("Json", configuration["metadata"])["name"])
            )


def body(namespace: str, **roles: Json) -> Json:
    return {"metadata": {"name": "job", "namespace": namespace}, "spec": job(roles=roles).spec}


async def bundles(stage: Scene, name: str) -> set[str]:
    """Return the CA bundles of the webhooks."""
    mutating = await stage.client.get(MutatingWebhookConfiguration, name)
    validating = await stage.client.get(ValidatingWebhookConfiguration, name)
    return {webhook.client_config.ca_bundle for webhook in (*mutating.webhooks, *validating.webhooks)}


async def test_webhooks_reject_invalid_jobs_and_set_defaults_of_valid_ones(
    scene: tuple[Scene, int],
) -> None:
    stage, port = scene
    name = f"{stage.namespace}-home"
    async with stage.operator(endpoint=f"127.0.0.1:{port}", webhooks=name, apis=(ARES,)):

        async def has_bundles() -> bool:
            return all(await bundles(stage, name))

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
    name = f"{stage.namespace}-home"
    store = SecretStore(stage.client, stage.namespace, f"{NAME}-tls")
    common: dict[str, object] = {"webhooks": name, "apis": (ARES,), "leader_elect": True}
    async with (
        stage.operator(**common, identity="leader", endpoint=f"127.0.0.1:{port}"),
        stage.operator(**common, identity="standby"),
    ):

        async def bundle_is_current() -> bool:
            """Create a job each time, which fails if the webhook cannot be called."""
            trust, _ = await store.read()
            stored = await bundles(stage, name)
            if trust is None or "" in stored:
                return False
            await stage.client.create(Stored, body(stage.namespace, worker={}), stage.namespace)
            await stage.client.delete(Stored, "job", stage.namespace)
            return stored == {b64encode(trust.ca.encode()).decode()}

        await stage.until("the webhooks know our authority", bundle_is_current)
        for _ in range(2):
            await rotate(store, SystemClock(), ca=True)
            await stage.until("the webhooks know the new authority", bundle_is_current)
