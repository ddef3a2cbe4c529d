"""The nodes of a local control plane, and how they change at run time. Pure except for `read_nodes`.

`argosy up --nodes N` asks for node-1 to node-N. `argosy nodes` and `argosy rehearse` change that set while
the control plane runs. The node agent records it in `nodes.json`, before it makes a change, so that an agent
that is killed continues with it; `argosy down` deletes the file.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

MAX_NODES = 64

NodeState = Literal["Running", "Silenced", "Stopped", "Reclaimed"]
"""Silenced: pods run, nothing is reported. Stopped: off. Reclaimed: off, and its Node and disk are gone."""


class NodeChangeError(Exception):
    """The node cannot be changed like that in its present state."""


class NodeEntry(Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str
    pretend_gpus: int = 0
    state: NodeState = "Running"
    reclaim_at: datetime | None = None
    """When the node is reclaimed, as announced."""
    back_after: float | None = None
    """Seconds between its reclaim and its return; None if it does not return."""
    back_at: datetime | None = None
    """When a node that is off is switched on."""


class NodeSet(Struct, frozen=True):
    requested: int
    """The number of nodes that `argosy up` asked for."""
    entries: tuple[NodeEntry, ...]

    @classmethod
    def of(cls, requested: int, pretend_gpus: int) -> "NodeSet":
        return cls(requested, tuple(NodeEntry(name, pretend_gpus) for name in node_names(requested)))

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    def get(self, name: str) -> NodeEntry | None:
        return next((entry for entry in self.entries if entry.name == name), None)

    def with_entry(self, entry: NodeEntry) -> "NodeSet":
        """Return the set with this entry in place of that of the same name, or in addition."""
        if entry.name not in self.names:
            return replace(self, entries=(*self.entries, entry))
        return self._with(entry if entry.name == other.name else other for other in self.entries)

    def without(self, name: str) -> "NodeSet":
        return self._with(entry for entry in self.entries if entry.name != name)

    def next_change_at(self) -> datetime | None:
        """Return the next time at which `advance` changes the set."""
        times = [time for entry in self.entries for time in (entry.reclaim_at, entry.back_at)]
        return min((time for time in times if time is not None), default=None)

    def advance(self, now: datetime) -> "NodeSet":
        """Return the set with the next due change of each node: a reclaimed node returns only after that."""
        advanced = (_advance(entry, now) for entry in self.entries)
        return self._with(entry for entry in advanced if entry is not None)

    def _with(self, entries: Iterable[NodeEntry]) -> "NodeSet":
        return replace(self, entries=tuple(entries))


def _advance(entry: NodeEntry, now: datetime) -> NodeEntry | None:
    if entry.back_at is not None and entry.back_at <= now:
        return replace(entry, state="Running", back_at=None)
    if entry.reclaim_at is None or entry.reclaim_at > now:
        return entry
    if entry.back_after is None:
        return None
    back_at = entry.reclaim_at + timedelta(seconds=entry.back_after)
    return NodeEntry(entry.name, entry.pretend_gpus, "Reclaimed", back_at=back_at)


def node_names(count: int) -> list[str]:
    """Return the names of the nodes that `argosy up --nodes COUNT` asks for."""
    return [f"node-{number}" for number in range(1, count + 1)]


def free_name(nodes: NodeSet) -> str:
    """Return `node-N` with the lowest N that no node has."""
    return next(name for name in node_names(MAX_NODES + 1) if name not in nodes.names)


def silence(entry: NodeEntry) -> NodeEntry:
    return replace(_powered(entry), state="Silenced")


def resume(entry: NodeEntry) -> NodeEntry:
    """Return the node as it was added: not silenced, switched on, without an announced end."""
    return NodeEntry(entry.name, entry.pretend_gpus)


def stop(entry: NodeEntry, back_at: datetime | None) -> NodeEntry:
    return replace(_powered(entry), state="Stopped", back_at=back_at)


def reclaim(entry: NodeEntry, at: datetime, back_after: float | None) -> NodeEntry:
    """Announce the end of a node at a time."""
    return replace(_powered(entry), reclaim_at=at, back_after=back_after)


def _powered(entry: NodeEntry) -> NodeEntry:
    if entry.state in ("Stopped", "Reclaimed"):
        hint = f"`argosy nodes resume {entry.name}` switches it on"
        raise NodeChangeError(f"{entry.name}: the node is {entry.state.lower()}; {hint}")
    return entry


def read_nodes(path: Path, requested: int, pretend_gpus: int = 0) -> NodeSet:
    """Return the recorded nodes, or those asked for if none were recorded for the same number of nodes."""
    try:
        nodes = msgspec.json.decode(path.read_bytes(), type=NodeSet)
    except (FileNotFoundError, msgspec.DecodeError):
        return NodeSet.of(requested, pretend_gpus)
    return nodes if nodes.requested == requested else NodeSet.of(requested, pretend_gpus)
