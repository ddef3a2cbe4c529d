"""Labels the Node with what can be restored on it: `image`, `pod` or `none`; no label if that is not known.

An agent cannot see whether the container runtime is configured to restore checkpoints. It can see that
nothing can be restored: the runtime cannot do it, or CRIU is missing or does not work here. That is labelled
`none`. That it can be done is for the administrator to say, by the setting; without it the label is left to
others, and a `none` that no longer holds is removed.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from argosy.agent.objects import OwnNode
from argosy.agent.settings import AgentSettings
from argosy.checkpoint.drivers.criu import find_command
from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.kinds.spot import RESTORE_CAPABILITY

log = Logger(__name__)

AUTO, NONE = "auto", "none"
PROBE_SECONDS: Final = 600.0
"""Between two probes: CRIU may be installed later."""
CHECK_SECONDS: Final = 30.0
RETRY: Final = Backoff(initial=0.5, maximum=60.0)


class CapabilityLabel:
    """Keeps the label of the Node."""

    def __init__(self, client: Client, nodes: Cache[OwnNode], settings: AgentSettings) -> None:
        self._client = client
        self._nodes = nodes
        self._settings = settings
        self._changed = asyncio.Event()
        self._labels: dict[str, str] | None = None
        nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Probe now and then, and write the label when it should be another one."""
        await self._nodes.wait_synced()
        failures = 0
        while True:
            self._changed.clear()
            try:
                await self._update()
            except ApiError as error:
                failures += 1
                log.warning("label not written; retrying", error=str(error))
                await asyncio.sleep(RETRY.delay(failures))
                continue
            failures = 0
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _update(self) -> None:
        node = self._nodes.get("", self._settings.node)
        if node is None:
            return
        current = node.metadata.labels.get(RESTORE_CAPABILITY, "")
        wanted = await self._wanted(node, current)
        if wanted != current:
            log.info("restore capability", label=wanted or "unknown")
            patch = {"metadata": {"labels": {RESTORE_CAPABILITY: wanted or None}}}
            self._nodes.put(await self._client.patch(OwnNode, node.metadata.name, patch))

    async def _wanted(self, node: OwnNode, current: str) -> str:
        if self._settings.restore_capability != AUTO:
            return self._settings.restore_capability
        problem = runtime_problem(node.status.node_info.container_runtime_version)
        problem = problem or await criu_problem(self._settings.host_command)
        if problem:
            log.debug("nothing can be restored", reason=problem)
            return NONE
        return "" if current == NONE else current

    def _on_node(self, change: Change[OwnNode]) -> None:
        """Wake up when the label changes, and when the container runtime does."""
        if change.new is None:
            return
        runtime = change.new.status.node_info.container_runtime_version
        relevant = {"label": change.new.metadata.labels.get(RESTORE_CAPABILITY, ""), "runtime": runtime}
        if relevant != self._labels:
            self._labels = relevant
            self._changed.set()


def runtime_problem(version: str) -> str:
    """Return why a container runtime, such as `containerd://2.1.4`, restores nothing; empty if it may."""
    name, _, number = version.partition("://")
    found = re.match(r"v?(\d+)\.(\d+)", number)
    if name == "argosy":
        return ""  # the local control plane
    if not found or name not in ("containerd", "cri-o"):
        return f"container runtime {version or 'unknown'} makes no checkpoints" if name else ""
    if name == "containerd" and int(found[1]) < 2:
        return "containerd makes checkpoints since version 2.0"
    if name == "cri-o" and (int(found[1]), int(found[2])) < (1, 25):
        return "CRI-O makes checkpoints since version 1.25"
    return ""


async def criu_problem(host_command: Sequence[str]) -> str:
    """Return why CRIU does not work on the host; empty if it does."""
    criu = [*host_command, "criu"] if host_command else find_command() or ["criu"]
    try:
        process = await asyncio.create_subprocess_exec(
            *criu,
            "check",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        return f"{criu[0]}: {error.strerror}"
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return "criu check does not end"
    return f"criu check: exit code {code}" if code else ""
