"""Makes the nodes of this machine what nodes.json says: running, silenced, stopped or reclaimed.

Every change is recorded before it is made, and making it again changes nothing, so that an agent that was
killed at any point continues. Changes at a time (`argosy rehearse reclaim --in 30s`) are made here too, so
they do not depend on the command that asked for them.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.local.node.agent import Agent
from argosy.local.node.node_status import NodeRegistrar
from argosy.local.node.settings import Settings
from argosy.local.node_set import NodeEntry, NodeSet, read_nodes
from argosy.local.processes import write_json
from argosy.local.state import State

log = Logger(__name__)

_RETRY_SECONDS = 1.0
_MAX_WAIT_SECONDS = 1.0
"""The longest wait for a time of day, because the clock may be set."""


class NodeControl:
    def __init__(self, settings: Settings, agent: Agent, registrar: NodeRegistrar) -> None:
        self._path = State(settings.state).nodes
        self.pretend_gpus = settings.pretend_gpus
        self._agent = agent
        self._registrar = registrar
        self.nodes = read_nodes(self._path, settings.nodes, settings.pretend_gpus)
        agent.unreachable |= {entry.name for entry in self.nodes.entries if entry.state != "Running"}
        self._applied: dict[str, NodeEntry | None] = {}
        """What was made of each node; None for a node that may have to be removed."""
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self.started = asyncio.Event()
        """Set when all nodes are what an earlier agent recorded."""

    async def run(self) -> None:
        """Start the nodes, and make the changes that become due, until cancelled."""
        self._applied = dict.fromkeys(self._agent.nodes_with_pods())
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._find_stale_nodes())
            while True:
                self._changed.clear()
                pause = await self._advance()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()

    async def change(self, update: Callable[[NodeSet], NodeSet]) -> None:
        """Record changed nodes and make them so; after ApiError this is tried again until it succeeds."""
        async with self._lock:
            self._record(update(self.nodes))
            self._changed.set()
            await self._apply()

    async def exists(self, name: str) -> bool:
        """Return True if the API server has a Node of this name."""
        return await self._registrar.exists(name)

    async def _advance(self) -> float | None:
        """Make what is recorded, and record what has become due; return the seconds until the next change."""
        async with self._lock:
            try:
                await self._apply()
                self.started.set()
                now = datetime.now(UTC)
                nodes = self.nodes.advance(now)
                if nodes != self.nodes:
                    self._record(nodes)
                    return 0.0
            except (ApiError, OSError) as error:
                log.warning("nodes could not be changed", error=str(error))
                return _RETRY_SECONDS
            due = nodes.next_change_at()
            return None if due is None else min(_MAX_WAIT_SECONDS, max(0.0, (due - now).total_seconds()))

    def _record(self, nodes: NodeSet) -> None:
        write_json(self._path, nodes)
        self.nodes = nodes

    async def _apply(self) -> None:
        for name in [*self.nodes.names, *(set(self._applied) - set(self.nodes.names))]:
            entry = self.nodes.get(name)
            before = self._applied.get(name)
            if entry is None:
                await self._remove(name)
                del self._applied[name]
            elif entry != before:
                await self._make(entry, before)
                self._applied[name] = entry

    async def _make(self, entry: NodeEntry, before: NodeEntry | None) -> None:
        assert self._group is not None
        match entry.state:
            case "Running":
                self._agent.attach(entry.name)
                self._registrar.start(entry, self._group)
            case "Silenced":
                await self._agent.detach(entry.name)
                await self._registrar.stop(entry.name)
            case "Stopped":
                await self._agent.power_off(entry.name)
                await self._registrar.stop(entry.name)
            case "Reclaimed":
                await self._remove(entry.name)
                return
        if before is not None or entry.state != "Running":  # else it is announced when it is registered
            await self._registrar.announce(entry)

    async def _remove(self, name: str) -> None:
        await self._agent.erase(name)
        await self._registrar.stop(name)
        await self._registrar.delete(name)

    async def _find_stale_nodes(self) -> None:
        """Remove the Nodes of an earlier run that this one does not have."""
        while True:
            try:
                registered = await self._registrar.registered()
                break
            except ApiError:
                await asyncio.sleep(_RETRY_SECONDS)
        async with self._lock:
            for name in registered:
                self._applied.setdefault(name, None)
        self._changed.set()
