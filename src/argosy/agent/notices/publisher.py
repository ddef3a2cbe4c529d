"""Writes what a cloud announces to the Node: the annotations of its end, and a taint for hints.

A deadline is never extended: of several notices, and of what is there already, the earliest counts. What this
agent has written is removed when the cloud withdraws it, also if that happened while no agent ran: the source
in the annotation says whose it is. What others have written is only ever replaced by an earlier deadline.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from argosy.agent.notices.base import Notice, NoticeSource
from argosy.agent.objects import OwnNode, OwnPod
from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client, PatchType
from argosy.engine.errors import ApiError
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Taint
from argosy.kinds.spot import TERMINATION_DEADLINE, TERMINATION_SOURCE

log = Logger(__name__)

HINT_TAINT = "aws-node-termination-handler/rebalance-recommendation"

RETRY = Backoff(initial=0.05, maximum=2.0)


class NoticePublisher:
    """Writes to the Node of this machine what a source announces.

    A notice is acknowledged when none of the machine's pods needs the time until the deadline.
    """

    def __init__(
        self, client: Client, nodes: Cache[OwnNode], pods: Cache[OwnPod], name: str, source: NoticeSource
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._pods = pods
        self._name = name
        self._source = source
        self._notices: tuple[Notice, ...] | None = None
        self._changed = asyncio.Event()
        nodes.subscribe(self._on_change)
        pods.subscribe(self._on_change)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Return the notices that the source announces now."""
        return self._notices or ()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._source.run(self._on_report))
            tasks.create_task(self._publish())

    def _on_report(self, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            if notice not in self.notices:
                log.info("announced", source=notice.source, deadline=format_time(notice.deadline))
        self._notices = notices
        self._changed.set()

    def _on_change(self, _: Change[OwnNode] | Change[OwnPod]) -> None:
        self._changed.set()

    async def _publish(self) -> None:
        failures = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
                await self._acknowledge()
            except (ApiError, OSError) as error:
                failures += 1
                log.warning("notice not published; retrying", error=str(error))
                await asyncio.sleep(RETRY.delay(failures))
                self._changed.set()
            else:
                failures = 0

    async def _write(self) -> None:
        node = self._nodes.get("", self._name)
        if self._notices is None or (node is None and self._nodes.synced):
            return  # nothing is known yet; or the kubelet has not registered, and will wake this
        if node is None:
            node = await self._client.get(OwnNode, self._name)
        patch = annotations_patch(node.metadata.annotations, self._notices, self._source.prefix)
        if patch is not None:
            body = {"metadata": {"annotations": patch}}
            self._nodes.put(await self._client.patch(OwnNode, self._name, body))
        if (operations := taint_patch(node, self._notices)) is not None:
            self._nodes.put(await self._client.patch(OwnNode, self._name, operations, type=PatchType.JSON))

    async def _acknowledge(self) -> None:
        ends = any(not notice.is_hint for notice in self.notices)
        if ends and self._pods.synced and not any(pod.needs_node for pod in self._pods):
            await self._source.acknowledge()


def annotations_patch(
    annotations: Mapping[str, str], notices: Collection[Notice], prefix: str
) -> dict[str, str | None] | None:
    """Return the annotations to change; None if there are none. `prefix` is that of our own sources."""
    announced = {notice.source: notice for notice in notices if not notice.is_hint}
    current, source = (
        parse_time(annotations.get(TERMINATION_DEADLINE, "")),
        annotations.get(TERMINATION_SOURCE, ""),
    )
    if source.startswith(prefix) and source not in announced:
        current = None  # withdrawn
    earliest = min(announced.values(), key=lambda notice: notice.deadline, default=None)
    if earliest is not None and (current is None or earliest.deadline < current):
        wanted = {TERMINATION_DEADLINE: format_time(earliest.deadline), TERMINATION_SOURCE: earliest.source}
        return None if wanted.items() <= annotations.items() else dict(wanted)
    if earliest is None and current is None and source.startswith(prefix):
        return {TERMINATION_DEADLINE: None, TERMINATION_SOURCE: None}
    return None


def taint_patch(node: OwnNode, notices: Collection[Notice]) -> list[dict[str, object]] | None:
    """Return the JSON patch that sets or removes the taint of a hint; None if nothing changes."""
    hinted = any(notice.is_hint for notice in notices)
    index = _index_of(node.spec.taints, HINT_TAINT)
    test: dict[str, object] = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": node.metadata.resource_version,
    }
    if hinted and index is None:
        taint = {"key": HINT_TAINT, "effect": "PreferNoSchedule"}
        path, value = ("/spec/taints/-", taint) if node.spec.taints else ("/spec/taints", [taint])
        return [test, {"op": "add", "path": path, "value": value}]
    if not hinted and index is not None and node.spec.taints[index].effect == "PreferNoSchedule":
        return [test, {"op": "remove", "path": f"/spec/taints/{index}"}]
    return None


def _index_of(taints: Sequence[Taint], key: str) -> int | None:
    return next((index for index, taint in enumerate(taints) if taint.key == key), None)


def parse_time(text: str) -> datetime | None:
    """Return a time of RFC 3339 with a zone; None for anything else."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


def format_time(time: datetime) -> str:
    """Return the time in RFC 3339, rounded down to seconds: a deadline is never later than announced."""
    return time.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
