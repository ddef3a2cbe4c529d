"""Determines the health of nodes that pods are on, and asks the API server where the cache is no proof.

A node is down if its condition Ready is Unknown, or if the API server answers a GET with NotFound. A node
that the cache does not have may be new, and a condition in a cache whose watch is silent may be outdated:
such a node is unconfirmed, and nothing is concluded from it until the API server has answered. One request
per node at a time serves all jobs. It is made in the background, so that no reconcile waits for it; jobs with
pods on the node are reconciled when the answer arrives.

Announced ends of nodes are hints of what will happen, so the cache is good enough for them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field

from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Node, Pod
from argosy.workload.announcements import OUT_OF_SERVICE, Announcement, NoticeRules, find_announcement
from argosy.workload.capacity import read_hourly_price
from argosy.workload.quarantine import NodeQuarantine, read_quarantine
from argosy.workload.usage_record import PricedNode

log = Logger(__name__)

MAX_REQUESTS = 8
"""Nodes that are requested at a time."""

ANSWER_VALID_SECONDS = 30.0
"""How long an answer is valid while the watch is silent."""

REFRESH_SECONDS = 10.0
"""Time between two requests for a node while the watch is silent."""

SHOW_AFTER_SECONDS = 2.0
"""How long a node is unconfirmed before that is shown: most answers come within milliseconds."""


class NodeStates(Struct, frozen=True):
    """What is known of some nodes, by name."""

    down: frozenset[str] = frozenset()
    """Ready is Unknown, or the node is confirmed to be gone."""
    partly_unknown: frozenset[str] = frozenset()
    """Any condition is Unknown."""
    released: frozenset[str] = frozenset()
    """Down, and certain to run no pods any more: deleted, or tainted as out of service."""
    unconfirmed: Mapping[str, str] = field(default_factory=dict)
    """The API server is being asked; with the error so far, empty until that is worth showing."""


class _Answer(Struct, frozen=True):
    """What the API server answered about a node: the object, or None if it does not exist."""

    node: Node | None
    at: float


class _Question(Struct):
    """A node that is being requested from the API server."""

    since: float
    problem: str = ""


class NodeHealth:
    """`pods_on` returns True while there are pods on a node."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        cache: Cache[Node],
        pods_on: Callable[[str], bool],
        backoff: Backoff = Backoff(initial=0.5, maximum=30.0),
    ) -> None:
        self._client = client
        self._clock = clock
        self._cache = cache
        self._pods_on = pods_on
        self._backoff = backoff
        self._answers: dict[str, _Answer] = {}
        self._questions: dict[str, _Question] = {}
        self._new: list[str] = []
        self._has_questions = asyncio.Event()
        self._limit = asyncio.Semaphore(MAX_REQUESTS)
        self._listeners: list[Callable[[str], None]] = []
        cache.subscribe(self._cache_changed)

    def on_answer(self, listener: Callable[[str], None]) -> None:
        """Call with the name of a node when the API server has answered something new about it."""
        self._listeners.append(listener)

    def states(self, names: Iterable[str]) -> NodeStates:
        """Return what is known of these nodes now."""
        down, partly_unknown, released = set(), set(), set()
        unconfirmed: dict[str, str] = {}
        for name in names:
            node = self._cache.get("", name)
            if node is not None and not has_unknown_condition(node):
                continue
            answer = self._valid_answer(name)
            if node is None or not self._cache.is_current:
                if answer is None:
                    unconfirmed[name] = self._shown_problem(name)
                    continue
                node = answer.node
            if node is None:
                down.add(name)
                released.add(name)
                continue
            if has_unknown_condition(node):
                partly_unknown.add(name)
            if is_down(node):
                down.add(name)
                if is_out_of_service(node):
                    released.add(name)
        return NodeStates(frozenset(down), frozenset(partly_unknown), frozenset(released), unconfirmed)

    def confirm(self, names: Iterable[str]) -> float | None:
        """Request these nodes in the background.

        Returns when it becomes worth showing that one has no answer yet, on the monotonic clock; None if that
        is shown already or nothing is requested.
        """
        now = self._clock.monotonic()
        times = []
        for name in names:
            question = self._questions.get(name)
            if question is None:
                question = self._questions[name] = _Question(now)
                self._new.append(name)
                self._has_questions.set()
            times.append(question.since + SHOW_AFTER_SECONDS)
        return min((time for time in times if time > now), default=None)

    def forget_unused(self, name: str) -> None:
        """Drop the answer about a node on which there are no pods any more."""
        if name in self._answers and not self._pods_on(name):
            del self._answers[name]

    @property
    def unconfirmed(self) -> int:
        """The number of nodes that were requested and have no valid answer."""
        return sum(self._valid_answer(name) is None for name in self._questions)

    async def run(self) -> None:
        """Make the requests, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._has_questions.wait()
                self._has_questions.clear()
                new, self._new = self._new, []
                for name in new:
                    tasks.create_task(self._ask_until_known(name))

    async def _ask_until_known(self, name: str) -> None:
        """Request a node until the watch can be relied on again, or no pods are on the node."""
        failures = 0
        try:
            while self._needs_answer(name):
                if await self._ask(name):
                    failures, pause = 0, REFRESH_SECONDS
                    if self._cache.is_current:
                        return
                else:
                    failures += 1
                    pause = self._backoff.delay(failures)
                await asyncio.sleep(pause)
        finally:
            del self._questions[name]
            self.forget_unused(name)

    def _needs_answer(self, name: str) -> bool:
        """Return True while the cache alone does not tell how the node is."""
        if not self._pods_on(name):
            return False
        node = self._cache.get("", name)
        return node is None or (has_unknown_condition(node) and not self._cache.is_current)

    async def _ask(self, name: str) -> bool:
        async with self._limit:
            node: Node | None
            try:
                node = await self._client.get(Node, name)
            except NotFound:
                node = None
            except ApiError as error:
                self._questions[name].problem = error.message or error.reason
                log.warning("cannot confirm the state of a node", node=name, error=str(error))
                return False
        before = self._valid_answer(name)
        if node is not None:
            self._cache.put(node)
        self._answers[name] = _Answer(node, self._clock.monotonic())
        if before is None or _summary(before.node) != _summary(node):
            for listener in self._listeners:
                listener(name)
        return True

    def _valid_answer(self, name: str) -> _Answer | None:
        answer = self._answers.get(name)
        if answer is None:
            return None
        # The watch brings a node that is registered again; while it is silent, only time can tell.
        lasting = answer.node is None and self._cache.is_current
        young = self._clock.monotonic() - answer.at < ANSWER_VALID_SECONDS
        return answer if lasting or young else None

    def _shown_problem(self, name: str) -> str:
        question = self._questions.get(name)
        if question is None or self._clock.monotonic() - question.since < SHOW_AFTER_SECONDS:
            return ""
        return question.problem or "no answer yet"

    def _cache_changed(self, change: Change[Node]) -> None:
        node = change.new or change.old
        if node is not None:
            self._answers.pop(node.metadata.name, None)


_CORDON = NoticeRules({}, cordon=True)


class AnnouncedEnds:
    """The announced ends of nodes, read from each version of a Node once."""

    def __init__(self, cache: Cache[Node], rules: NoticeRules) -> None:
        self._rules = rules
        self._cache = cache
        self._announcements: dict[str, Announcement] = {}
        self._listeners: list[Callable[[str], None]] = []
        cache.subscribe(self._cache_changed)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call with the name of a node when its end is announced, or the announcement has changed."""
        self._listeners.append(listener)

    def of(self, names: Iterable[str], *, cordons: bool = False) -> dict[str, Announcement]:
        """Return the announced ends of these nodes, by name; with `cordons` a cordon announces one too."""
        if not self._announcements and not cordons:
            return {}
        names = tuple(names)
        announcements = {name: self._announcements[name] for name in names if name in self._announcements}
        for name in names if cordons else ():
            node = self._cache.get("", name)
            if node is not None and name not in announcements and (end := find_announcement(node, _CORDON)):
                announcements[name] = end
        return announcements

    def _cache_changed(self, change: Change[Node]) -> None:
        node = change.new or change.old
        if node is None:
            return
        name = node.metadata.name
        before = self._announcements.pop(name, None)
        after = find_announcement(change.new, self._rules) if change.new is not None else None
        if after is not None:
            self._announcements[name] = after
        if after != before:
            for listener in self._listeners:
                listener(name)


class NodePrices:
    """The hourly prices of nodes, read from each version of a Node once."""

    def __init__(self, cache: Cache[Node]) -> None:
        self._prices: dict[str, float] = {}
        cache.subscribe(self._cache_changed)

    def of(self, pods: Iterable[Pod]) -> tuple[PricedNode, ...]:
        """Return the nodes of these pods whose price is known, with the time since when they have one."""
        if not self._prices:
            return ()
        times: dict[str, list[datetime]] = {}
        for pod in pods:
            if (name := pod.spec.node_name) in self._prices:
                since = _scheduling_time(pod)
                times.setdefault(name, []).extend([since] if since else [])
        return tuple(PricedNode(self._prices[name], min(times[name], default=None)) for name in sorted(times))

    def _cache_changed(self, change: Change[Node]) -> None:
        node = change.new or change.old
        if node is None:
            return
        price = read_hourly_price(change.new) if change.new is not None else 0.0
        if price:
            self._prices[node.metadata.name] = price
        else:
            self._prices.pop(node.metadata.name, None)


def _scheduling_time(pod: Pod) -> datetime | None:
    """Return when the pod was scheduled; its creation if the scheduler has not reported it."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time or pod.metadata.creation_timestamp
    return pod.metadata.creation_timestamp


class QuarantinedNodes:
    """The nodes in quarantine, read from each version of a Node once."""

    def __init__(self, cache: Cache[Node], clock: Clock) -> None:
        self._clock = clock
        self._quarantines: dict[str, NodeQuarantine] = {}
        cache.subscribe(self._cache_changed)

    def for_namespace(self, namespace: str) -> tuple[str, ...]:
        """Return the nodes that pods of this namespace avoid now."""
        if not self._quarantines:
            return ()
        now = self._clock.now()
        return tuple(
            sorted(name for name, item in self._quarantines.items() if item.concerns(namespace, now))
        )

    def count(self) -> int:
        """Return how many nodes are in quarantine now, for all namespaces or for some."""
        now = self._clock.now()
        return sum(item.until > now for item in self._quarantines.values())

    def all(self) -> Mapping[str, NodeQuarantine]:
        """Return all quarantines that nodes show, also those that are over."""
        return self._quarantines

    def _cache_changed(self, change: Change[Node]) -> None:
        node = change.new or change.old
        if node is None:
            return
        quarantine = read_quarantine(change.new) if change.new is not None else None
        if quarantine is None:
            self._quarantines.pop(node.metadata.name, None)
        else:
            self._quarantines[node.metadata.name] = quarantine


def is_down(node: Node) -> bool:
    """Return True if the node has stopped reporting; one that reports that it is not ready is not down."""
    return any(
        condition.type == "Ready" and condition.status == "Unknown" for condition in node.status.conditions
    )


def has_unknown_condition(node: Node) -> bool:
    return any(condition.status == "Unknown" for condition in node.status.conditions)


def is_out_of_service(node: Node) -> bool:
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _summary(node: Node | None) -> tuple[bool, ...]:
    if node is None:
        return ()
    return is_down(node), has_unknown_condition(node), is_out_of_service(node)
