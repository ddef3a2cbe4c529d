"""Makes VMs of the rehearsal cloud nodes of a local control plane, and takes the nodes away with their VMs.

A VM joins as a real one would: by the last line of its startup script. The token in it must be a bootstrap
token of the cluster that has not expired; otherwise the VM runs and never becomes a node. As long as it is a
node, its agent runs: what the DaemonSet of node agents does on a real one.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime

from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Secret
from argosy.local.gce.cloud import Change, Cloud, Instance, metadata_of

log = Logger(__name__)

_JOIN = re.compile(
    r"kubeadm join (?P<endpoint>\S+) --token (?P<id>[a-z0-9]{6})\.(?P<secret>[a-z0-9]{16})"
    r" --discovery-token-ca-cert-hash (?P<hash>sha256:[0-9a-f]{64})"
)

RETRY_SECONDS = 1.0


class JoiningMachines:
    """Adds a node to a local control plane for each VM that joins, and removes it with the VM."""

    def __init__(
        self,
        cloud: Cloud,
        client: Client,
        report: Callable[[str], None],
        run_agent: Callable[[str], Awaitable[None]],
    ) -> None:
        self._client = client
        self._report = report
        """Called with a line for people whenever a VM joins, does not, or is gone."""
        self._run_agent = run_agent
        """Runs the agent of the node of this name until it is cancelled."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        cloud.subscribe(self._on_change)

    async def close(self) -> None:
        """Stop following the VMs; nodes stay as they are."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _on_change(self, instance: Instance, change: Change) -> None:
        if change == "Running":
            self._start(instance.name, self._join(instance))
        elif change in ("Gone", "Stopped"):
            self._start(instance.name, self._leave(instance))

    def _start(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Start work for a VM, and cancel the work that is under way for it."""
        earlier = self._tasks.get(name)
        if earlier is not None:
            earlier.cancel()
        self._tasks[name] = asyncio.ensure_future(work)

    async def _join(self, instance: Instance) -> None:
        problem = await self._retry(lambda: self._join_problem(instance))
        if problem:
            self._report(f"{instance.name} runs, and does not join: {problem}")
            return
        gpus = _gpus(instance)

        async def add() -> str:
            query = {"name": instance.name, "pretendGpus": str(gpus)}
            try:
                await self._client.request("POST", "/argosy/nodes", query=query)
            except (AlreadyExists, Conflict) as error:
                return error.message
            return ""

        problem = await self._retry(add)
        joined = f"{instance.name} joins as a node"
        self._report(f"{instance.name}: {problem}" if problem else joined)
        if not problem:
            await self._run_agent(instance.name)

    async def _leave(self, instance: Instance) -> None:
        async def remove() -> str:
            try:
                await self._client.request("DELETE", f"/argosy/nodes/{instance.name}")
            except NotFound:
                return "it was no node"
            return ""

        problem = await self._retry(remove)
        if not problem:
            self._report(f"{instance.name} is gone, and so is its node")

    async def _join_problem(self, instance: Instance) -> str:
        """Return why the VM cannot join; empty if it can."""
        script = metadata_of(instance).get("startup-script", "")
        match = _JOIN.fullmatch(script.rstrip("\n").rpartition("\n")[2])
        if match is None:
            return "the last line of its startup script is no kubeadm join"
        try:
            secret = await self._client.get(Secret, f"bootstrap-token-{match['id']}", "kube-system")
        except NotFound:
            return f"there is no bootstrap token {match['id']}"
        data = {key: _decode(value) for key, value in secret.data.items()}
        if data.get("token-secret") != match["secret"]:
            return f"the secret of the bootstrap token {match['id']} is another one"
        return f"the bootstrap token {match['id']} has expired" if _is_expired(data) else ""

    async def _retry(self, step: Callable[[], Awaitable[str]]) -> str:
        """Return the result of a step; repeat it while the API server is not available."""
        while True:
            try:
                return await step()
            except ApiError as error:
                log.warning("cannot change nodes; retrying", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)


def _gpus(instance: Instance) -> int:
    accelerators = instance.body.get("guestAccelerators")
    first = accelerators[0] if isinstance(accelerators, list) and accelerators else {}
    count = first.get("acceleratorCount", 0) if isinstance(first, dict) else 0
    return count if isinstance(count, int) else 0


def _decode(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _is_expired(data: dict[str, str]) -> bool:
    try:
        expires = datetime.fromisoformat(data.get("expiration", "9999-01-01T00:00:00Z"))
    except ValueError:
        return True
    return expires.tzinfo is None or expires <= datetime.now(UTC)
