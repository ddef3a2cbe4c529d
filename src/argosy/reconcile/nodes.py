"""Decides what is known of the nodes that pods are on, and asks the API where the cache is no proof.

A node is down if its own condition Ready is Unknown, or if the API, asked by GET, says that there is no such
node. A node that the cache does not know may be new, and a condition in a cache whose watch has fallen silent
may be over: such a node is unconfirmed, and nothing is concluded from it until the API has answered. One
request per node at a time serves all jobs. It is made in the background, so no job waits for it, and the
jobs with pods on the node are reconciled when the answer is there.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Node
from argosy.workload.observed import OUT_OF_SERVICE

log = Logger(__name__)

MAX_REQUESTS = 8
"""Nodes that are asked for at a time."""

ANSWER_SECONDS = 30.0
"""How long an answer is believed while the watch is silent."""

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
    """Down, and certain to run nothing any more: gone, or marked as out of service."""
    unconfirmed: Mapping[str, str] = field(default_factory=dict)
    """The API is being asked; with what it has said so far, empty until that is worth showing."""


class _Answer(Struct, frozen=True):
    """What the API said about a node: the object, or None if there is none."""

    node: Node | None
    at: float


class _Question(Struct):
    """A node that the API is being asked for."""

    since: float
    problem: str = ""


class NodeHealth:
    """`pods_on` tells whether there are still pods on a node."""

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
        self._asked = asyncio.Event()
        self._limit = asyncio.Semaphore(MAX_REQUESTS)
        self._listeners: list[Callable[[str], None]] = []
        cache.subscribe(self._cache_changed)

    def when_answered(self, listener: Callable[[str], None]) -> None:
        """Call with the name of a node when the API has said something new about it."""
        self._listeners.append(listener)

    def states(self, names: Iterable[str]) -> NodeStates:
        """Return what is known of these nodes now."""
        down, partly_unknown, released = set(), set(), set()
        unconfirmed: dict[str, str] = {}
        for name in names:
            node = self._cache.get("", name)
            if node is not None and not has_unknown_condition(node):
                continue
            answer = self._believed(name)
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
        """Ask the API for these nodes. Returns when it becomes worth showing that one has no answer yet, on
        the monotonic clock; None if that is shown already or nothing is asked."""
        now = self._clock.monotonic()
        times = []
        for name in names:
            question = self._questions.get(name)
            if question is None:
                question = self._questions[name] = _Question(now)
                self._new.append(name)
                self._asked.set()
            times.append(question.since + SHOW_AFTER_SECONDS)
        return min((time for time in times if time > now), default=None)

    def forget_unused(self, name: str) -> None:
        """Drop what the API said about a node on which there are no pods any more."""
        if name in self._answers and not self._pods_on(name):
            del self._answers[name]

    @property
    def unconfirmed(self) -> int:
        """How many nodes the API is asked for and has not answered."""
        return sum(self._believed(name) is None for name in self._questions)

    async def run(self) -> None:
        """Ask what there is to ask, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._asked.wait()
                self._asked.clear()
                new, self._new = self._new, []
                for name in new:
                    tasks.create_task(self._settle(name))

    async def _settle(self, name: str) -> None:
        """Ask for one node until an answer holds by itself, or nobody has pods on it any more."""
        failures = 0
        try:
            while self._is_asked_for(name):
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

    def _is_asked_for(self, name: str) -> bool:
        """Whether the cache alone still cannot tell."""
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
        before = self._believed(name)
        if node is not None:
            self._cache.put(node)
        self._answers[name] = _Answer(node, self._clock.monotonic())
        if before is None or _summary(before.node) != _summary(node):
            for listener in self._listeners:
                listener(name)
        return True

    def _believed(self, name: str) -> _Answer | None:
        answer = self._answers.get(name)
        if answer is None:
            return None
        # The watch brings a node that is registered again; while it is silent, only time can tell.
        lasting = answer.node is None and self._cache.is_current
        young = self._clock.monotonic() - answer.at < ANSWER_SECONDS
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


def is_down(node: Node) -> bool:
    """Whether nobody hears from the node any more; one that says itself it is not ready is not down."""
    return any(one.type == "Ready" and one.status == "Unknown" for one in node.status.conditions)


def has_unknown_condition(node: Node) -> bool:
    return any(one.status == "Unknown" for one in node.status.conditions)


def is_out_of_service(node: Node) -> bool:
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _summary(node: Node | None) -> tuple[bool, ...]:
    if node is None:
        return ()
    return is_down(node), has_unknown_condition(node), is_out_of_service(node)
