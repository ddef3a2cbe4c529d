"""The chart's webhook configurations, for a real API server that calls an operator in the test process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

from argosy.engine.client import Client
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import NotFound
from argosy.install.chart import Chart, chart_folder
from argosy.kinds.meta import Json
from argosy.kinds.webhooks import MutatingWebhookConfiguration, ValidatingWebhookConfiguration

KINDS = {
    kind.resource.kind: dynamic_kind(kind.resource)
    for kind in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)
}


def configuration_name(namespace: str) -> str:
    return f"{namespace}-home"


@asynccontextmanager
async def configured_webhooks(
    client: Client, port: int, namespace: str, apis: Mapping[str, bool]
) -> AsyncIterator[None]:
    """Let the API server call webhooks at the port of this machine, about objects of one namespace."""
    created = _configurations(port, namespace, apis)
    for configuration in created:
        await client.create(KINDS[str(configuration["kind"])], configuration)
    try:
        yield
    finally:
        for configuration in created:
            await client.delete(KINDS[str(configuration["kind"])], configuration_name(namespace))


async def ca_bundles(client: Client, namespace: str) -> set[str]:
    """Return the CA bundles of the webhooks."""
    found: set[str] = set()
    for kind in KINDS.values():
        try:
            configuration = await client.get(kind, configuration_name(namespace))
        except NotFound:
            continue
        webhooks = cast("list[dict[str, dict[str, str]]]", configuration.raw["webhooks"])
        found |= {webhook["clientConfig"].get("caBundle", "") for webhook in webhooks}
    return found


def _configurations(port: int, namespace: str, apis: Mapping[str, bool]) -> list[Json]:
    """Return the configurations of the chart, with the address of an operator that is not a pod."""
    chart = Chart(chart_folder())
    values = {
        "name": namespace,
        "apis": dict(apis),
        "webhooks": {"enabled": True},
        "watchNamespace": namespace,
    }
    configured = [obj for obj in chart.objects("home", chart.values(values)) if "webhooks" in obj]
    for configuration in configured:
        for webhook in cast("list[dict[str, Json]]", configuration["webhooks"]):
            service = cast("Json", webhook["clientConfig"].pop("service"))
            webhook["clientConfig"]["url"] = f"https://localhost:{port}{service['path']}"
    return configured
