"""Finds out which cloud the machine is in, if any."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from argosy.agent.notices.azure import AzureNotices
from argosy.agent.notices.base import Metadata, NoticeSource
from argosy.agent.notices.ec2 import TOKEN_HEADER, Ec2Notices
from argosy.agent.notices.gce import HEADERS, GceNotices
from argosy.engine.logs import Logger

log = Logger(__name__)

CLOUDS: Final = ("gce", "ec2", "azure")
PROBES = 5
"""How often a machine without a cloud is asked for one, before there is none."""
PROBE_SECONDS = 2.0

_PROVIDERS: Final[Mapping[str, str]] = {"gce": "gce", "aws": "ec2", "azure": "azure"}


def new_source(cloud: str, endpoint: str, has_gpus: Callable[[], bool]) -> NoticeSource:
    """Return the source of notices of a cloud."""
    if cloud == "gce":
        return GceNotices(endpoint, has_gpus=has_gpus)
    return Ec2Notices(endpoint) if cloud == "ec2" else AzureNotices(endpoint)


async def detect_cloud(provider_id: str, endpoint: str) -> str:
    """Return the cloud of the machine: that of the Node's providerID, or else the one that answers.

    Empty if there is none.
    """
    if cloud := _PROVIDERS.get(provider_id.partition("://")[0]):
        return cloud
    metadata = Metadata(endpoint)
    try:
        for attempt in range(PROBES):
            if attempt:
                await asyncio.sleep(PROBE_SECONDS * attempt)
            if cloud := await _probe(metadata):
                return cloud
    finally:
        await metadata.close()
    return ""


async def _probe(metadata: Metadata) -> str:
    try:
        google = await metadata.get("/computeMetadata/v1/", HEADERS, PROBE_SECONDS)
        if google.headers.get("Metadata-Flavor") == "Google":
            return "gce"
        azure = await metadata.get("/metadata/versions", {"Metadata": "true"}, PROBE_SECONDS)
        if azure.status == 200 and b"apiVersions" in azure.body:
            return "azure"
        token = await metadata.send(
            "PUT", "/latest/api/token", {f"{TOKEN_HEADER}-ttl-seconds": "60"}, timeout=PROBE_SECONDS
        )
    except OSError as error:
        log.debug("no metadata service", error=str(error))
        return ""
    return "ec2" if token.status == 200 and token.body else ""
