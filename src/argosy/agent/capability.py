"""Labels the Node with what can be restored on it, `image`, `pod` or `none`, and of whose processes.

The agent tries it: CRIU dumps and restores a process of root and one of another user, and the kubelet is
asked for a checkpoint of a container that does not exist. What does not work is labelled `none`. That the
container runtime restores images is known of a local control plane, and from configurations that say so: then
the label is `image`, or `none` if CRI-O is configured to restore none. Otherwise it is left to others, and a
`none` that no longer holds is removed.
"""

import asyncio
import re
from typing import Final, NamedTuple

from argosy.agent.host_probe import probe_criu, restores_images
from argosy.agent.kubelet import Kubelet, KubeletError
from argosy.agent.objects import OwnNode
from argosy.agent.settings import AgentSettings
from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.kinds.spot import CHECKPOINT_USERS, RESTORE_CAPABILITY

log = Logger(__name__)

AUTO, NONE, IMAGE, ROOT = "auto", "none", "image", "root"
PROBE_SECONDS: Final = 600.0
"""Between two probes: CRIU may be installed later."""
RETRY: Final = Backoff(initial=0.5, maximum=60.0)


class Findings(NamedTuple):
    """The result of a probe: what can be restored on the node."""

    runtime: str
    """The container runtime that was probed."""
    problem: str = ""
    """Why nothing can be restored."""
    users_problem: str = ""
    """Why only processes of root can be saved."""
    restores: bool | None = None
    """Whether the container runtime restores images; None if its configuration does not say."""


class CapabilityLabel:
    """Keeps the labels of the Node."""

    def __init__(
        self, client: Client, nodes: Cache[OwnNode], kubelet: Kubelet, settings: AgentSettings
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._kubelet = kubelet
        self._settings = settings
        self._changed = asyncio.Event()
        self._relevant: dict[str, str] | None = None
        self._findings: Findings | None = None
        nodes.subscribe(self._on_node)

    async def run(self) -> None:
        """Probe every `PROBE_SECONDS` and when the runtime changes, and write labels that differ."""
        await self._nodes.wait_synced()
        failures = 0
        while True:
            self._changed.clear()
            try:
                await self._update()
            except (ApiError, KubeletError, OSError, TimeoutError) as error:
                failures += 1
                log.warning("labels not written; retrying", error=str(error))
                await asyncio.sleep(RETRY.delay(failures))
                continue
            failures = 0
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                self._findings = None

    async def _update(self) -> None:
        node = self._nodes.get("", self._settings.node)
        if node is None:
            return
        current = _labels(node)
        wanted = await self._labels_to_set(node, current)
        changed = {name: value or None for name, value in wanted.items() if value != current[name]}
        if changed:
            findings = self._findings or Findings("")
            cannot = (
                "the container runtime is configured not to restore" if findings.restores is False else ""
            )
            reason = findings.problem or cannot or findings.users_problem
            log.info("restore capability", label=wanted[RESTORE_CAPABILITY] or "unknown", reason=reason)
            patch = {"metadata": {"labels": changed}}
            self._nodes.put(await self._client.patch(OwnNode, node.metadata.name, patch))

    async def _labels_to_set(self, node: OwnNode, current: dict[str, str]) -> dict[str, str]:
        runtime = node.status.node_info.container_runtime_version
        findings = self._findings
        if findings is None or findings.runtime != runtime:
            findings = self._findings = await self._probe(node, runtime)
        capability = current[RESTORE_CAPABILITY]
        if self._settings.restore_capability != AUTO:
            capability = self._settings.restore_capability
        elif findings.problem or findings.restores is False:
            capability = NONE
        elif findings.restores:
            capability = IMAGE
        elif capability == NONE:
            capability = ""
        only_root = capability != NONE and not findings.problem and findings.users_problem
        return {RESTORE_CAPABILITY: capability, CHECKPOINT_USERS: ROOT if only_root else ""}

    async def _probe(self, node: OwnNode, runtime: str) -> Findings:
        """Raises KubeletError, OSError or TimeoutError if it cannot be found out now."""
        if problem := runtime_problem(runtime):
            return Findings(runtime, problem)
        criu = await probe_criu(self._settings.host_command)
        if criu.problem:
            return Findings(runtime, criu.problem)
        port = node.status.daemon_endpoints.kubelet_endpoint.port
        problem = await self._kubelet.checkpoint_problem(node.internal_ip, port, node.metadata.name)
        restores = await restores_images(runtime, self._settings.host_command)
        return Findings(runtime, problem, criu.users_problem, restores)

    def _on_node(self, change: Change[OwnNode]) -> None:
        """Wake up when a label changes, and when the container runtime does."""
        if change.new is None:
            return
        runtime = change.new.status.node_info.container_runtime_version
        relevant = {**_labels(change.new), "runtime": runtime}
        if relevant != self._relevant:
            self._relevant = relevant
            self._changed.set()


def _labels(node: OwnNode) -> dict[str, str]:
    return {name: node.metadata.labels.get(name, "") for name in (RESTORE_CAPABILITY, CHECKPOINT_USERS)}


def runtime_problem(version: str) -> str:
    """Return why a container runtime, such as `containerd://2.1.4`, restores nothing; empty if it may."""
    name, _, number = version.partition("://")
    match = re.match(r"v?(\d+)\.(\d+)", number)
    if name == "argosy":
        return ""  # the local control plane
    if not match or name not in ("containerd", "cri-o"):
        return f"container runtime {version or 'unknown'} makes no checkpoints" if name else ""
    if name == "containerd" and int(match[1]) < 2:
        return "containerd makes checkpoints since version 2.0"
    if name == "cri-o" and (int(match[1]), int(match[2])) < (1, 25):
        return "CRI-O makes checkpoints since version 1.25"
    return ""
