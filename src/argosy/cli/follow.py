"""Follows one run to its end: a line for every change of its phase, and what its pods print, as it comes.

Built on the engine's caches, so that a restart of the API server or a dropped connection is not noticed:
the caches resume, and a log stream that broke goes on after the last line it gave.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from typing import Literal

import click

from argosy.dialects.conditions import INVALID
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import ApiError, BadRequest, NotFound
from argosy.kinds.kubernetes import ContainerStatus, Pod
from argosy.kinds.labels import INDEX, JOB, ROLE
from argosy.kinds.names import LABEL_LENGTH
from argosy.kinds.trainingrun import TrainingRun

Outcome = Literal["Succeeded", "Failed", "Deleted", "Refused"]

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_yellow")
_PHASE_COLOURS = {"Succeeded": "green", "Failed": "red", "Running": "cyan", "Restarting": "yellow"}
_DRAIN_SECONDS = 5.0
"""For last lines after a run's end, counted anew while a stream is broken (its node is being restarted)."""
_LONGEST_DRAIN = 30.0


class Printer:
    """Writes whole lines, each with where it came from; the same pod always in the same colour."""

    def __init__(self, write: Callable[[str], None] = click.echo) -> None:
        self._write = write
        self._colours: dict[str, str] = {}
        self._width = 0

    def phase(self, name: str, phase: str, text: str) -> None:
        shown = click.style(f"{phase:<10}", fg=_PHASE_COLOURS.get(phase), bold=True)
        self._write(f"{click.style(name, bold=True)}  {shown} {text}".rstrip())

    def line(self, source: str, text: str) -> None:
        colour = self._colours.setdefault(source, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._width = max(self._width, len(source))
        self._write(f"{click.style(f'{source:<{self._width}} │', fg=colour)} {text}")


class Follower:
    """Prints the life of one run; `outcome` is done when the run has ended and its last lines are out."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        printer: Printer,
        *,
        labels: str = "",
        tail: int | None = None,
        until_refused: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._printer = printer
        self._labels = labels or pods_of(name)
        self._tail = tail
        self._until_refused = until_refused
        self._told = ("", "")
        self._last_words: tuple[str, str] | None = None
        self._streams: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._broken_at = 0.0
        self._ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def outcome(self) -> Outcome:
        """Follow until the end, and say which it was."""
        runs = Cache(
            self._client, TrainingRun, namespace=self._namespace, fields=f"metadata.name={self._name}"
        )
        runs.subscribe(self._run_changed)
        pods = Cache(self._client, Pod, namespace=self._namespace, labels=self._labels)
        pods.subscribe(self._pod_changed)
        tasks = [asyncio.create_task(cache.run()) for cache in (runs, pods)]
        try:
            ended = await self._ended
            await self._drain()
            if self._last_words:
                self._printer.phase(self._name, *self._last_words)
            return ended
        finally:
            for task in (*tasks, *self._streams.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._streams.values(), return_exceptions=True)

    async def _drain(self) -> None:
        """Let the pods say their last lines, those too of which the cache has not heard yet."""
        try:
            listed = await self._client.list(Pod, self._namespace, labels=self._labels)
        except ApiError:
            pass
        else:
            for pod in listed.items:
                self._pod_changed(Change(None, pod))
        loop = asyncio.get_running_loop()
        began = loop.time()
        while talking := [stream for stream in self._streams.values() if not stream.done()]:
            end = min(max(began, self._broken_at) + _DRAIN_SECONDS, began + _LONGEST_DRAIN)
            if end <= loop.time():
                return
            await asyncio.wait(talking, timeout=end - loop.time())

    def _run_changed(self, change: Change[TrainingRun]) -> None:
        if change.new is None:
            self._finish("Deleted")
            return
        status = change.new.status
        news = (status.phase or "Pending", status.message or status.reason)
        if status.phase in ("Succeeded", "Failed"):
            self._last_words = news  # said when the pods have said theirs
            self._finish("Succeeded" if status.phase == "Succeeded" else "Failed")
        elif news != self._told:
            self._told = news
            self._printer.phase(self._name, *news)
            if self._until_refused and status.reason == INVALID and status.start_time is None:
                self._finish("Refused")

    def _finish(self, outcome: Outcome) -> None:
        if not self._ended.done():
            self._ended.set_result(outcome)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            return
        several = len(pod.status.container_statuses) > 1
        for container in pod.status.container_statuses:
            if _has_started(container):
                self._stream(pod, container, several)

    def _stream(self, pod: Pod, container: ContainerStatus, several: bool) -> None:
        key = (pod.metadata.uid, container.name, container.restart_count)
        if key not in self._streams:
            source = source_of(pod.metadata.labels, container.name if several else "")
            self._streams[key] = asyncio.create_task(
                self._follow_log(pod.metadata.name, container.name, source)
            )

    async def _follow_log(self, pod: str, container: str, source: str) -> None:
        place = Place()
        while True:
            tail = None if place.stamp else self._tail
            stream = self._client.logs(
                pod, self._namespace, container=container, follow=True, timestamps=True, tail=tail
            )
            try:
                async for text in place.unseen(lines(stream)):
                    self._printer.line(source, text)
                return
            except (NotFound, BadRequest):
                return
            except ApiError:
                self._broken_at = asyncio.get_running_loop().time()
                await asyncio.sleep(0.2)


class Place:
    """How far a log has been read, so that a stream opened again goes on after the last line."""

    def __init__(self) -> None:
        self.stamp = ""
        self._same = 0
        """Lines read that carry this very time."""

    async def unseen(self, stamped: AsyncIterable[str]) -> AsyncIterator[str]:
        """The lines after the place, without their times. Times are of one width, so they compare as text."""
        stop, skip = self.stamp, self._same
        async for line in stamped:
            stamp, _, text = line.partition(" ")
            if stamp < stop:
                continue
            if stamp == stop and skip:
                skip -= 1
                continue
            self._same = self._same + 1 if stamp == self.stamp else 1
            self.stamp = stamp
            yield text


def pods_of(run: str) -> str:
    """Selects the pods of a run. A name too long for a label has none, because the operator refuses it."""
    return f"{JOB}={run}" if len(run) <= LABEL_LENGTH else f"{JOB},!{JOB}"


def source_of(labels: Mapping[str, str], container: str = "") -> str:
    """How a pod is called in front of its lines: `worker-2`, or `worker-2/sidecar`."""
    name = f"{labels.get(ROLE, '?')}-{labels.get(INDEX, '?')}"
    return f"{name}/{container}" if container else name


def in_order(pods: Iterable[Pod]) -> list[Pod]:
    """Pods by role, then by index."""
    return sorted(
        pods, key=lambda pod: (pod.metadata.labels.get(ROLE, ""), int(pod.metadata.labels.get(INDEX, 0)))
    )


async def lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Whole lines out of chunks that end anywhere."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _has_started(container: ContainerStatus) -> bool:
    return container.state.running is not None or container.state.terminated is not None
