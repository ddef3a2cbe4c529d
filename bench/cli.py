"""The waiting times of users: help, a local control plane, the first line of output, many short pods."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Pod
from bench.figures import Figure

ARGOSY = Path(sys.executable).with_name("argosy")
SHORT_PODS, IN_FLIGHT = 200, 50


def measure() -> Iterator[Figure]:
    yield _help()
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        environment = {**os.environ, "ARGOSY_HOME": home}
        environment.pop("KUBECONFIG", None)
        try:
            yield _up(environment)
            yield _first_output(environment)
            yield asyncio.run(_short_pods(Path(home) / "local" / "kubeconfig"))
        finally:
            subprocess.run([ARGOSY, "down", "--delete"], env=environment, check=False, capture_output=True)


def _help() -> Figure:
    seconds = _best([ARGOSY, "--help"], 5)
    bound = _best([sys.executable, "-c", ""], 5)
    return Figure("help_ms", seconds * 1000, "ms", bound * 1000, "Python that does nothing", 150)


def _up(environment: dict[str, str]) -> Figure:
    start = time.perf_counter()
    subprocess.run([ARGOSY, "up"], env=environment, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    bound = _best([sys.executable, "-c", "import argosy.wire.client, msgspec"], 3)
    return Figure("up_ready_s", seconds, "s", bound, "Python that imports an HTTP client", 2.0)


def _first_output(environment: dict[str, str]) -> Figure:
    """Measure from the start of the command to its first line of output; the better of two runs counts."""
    command = [ARGOSY, "run", "--replicas", "2", "--", "echo", "the first line"]
    seconds = min(_seconds_to_line(command, "the first line", environment) for _ in range(2))
    bound = _seconds_to_line(["sh", "-c", "echo the first line"], "the first line", environment)
    return Figure("first_output_s", seconds, "s", bound, "the same command in a shell", 1.5)


def _seconds_to_line(command: list[object], expected: str, environment: dict[str, str]) -> float:
    start = time.perf_counter()
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if expected in line:
                seconds = time.perf_counter() - start
                process.stdout.read()
                return seconds
    raise RuntimeError(f"{command} never printed {expected!r}")


async def _short_pods(kubeconfig: Path) -> Figure:
    async with Client(Connection.from_kubeconfig(kubeconfig)) as client:
        finished: dict[str, asyncio.Event] = {
            f"short-{number}": asyncio.Event() for number in range(SHORT_PODS)
        }

        def changed(change: Change[Pod]) -> None:
            if change.new is not None and change.new.status.phase == "Succeeded":
                finished[change.new.metadata.name].set()

        cache = Cache(client, Pod, namespace="default", labels="bench=short")
        cache.subscribe(changed)
        watching = asyncio.create_task(cache.run())
        slots = asyncio.Semaphore(IN_FLIGHT)
        start = time.perf_counter()
        await asyncio.gather(*(_run_pod(client, name, event, slots) for name, event in finished.items()))
        seconds = time.perf_counter() - start
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    return Figure("pods_200_s", seconds, "s", await _bare_processes(), "the same commands as processes", 15.0)


async def _run_pod(client: Client, name: str, finished: asyncio.Event, slots: asyncio.Semaphore) -> None:
    container = {"name": "main", "image": "local", "command": ["true"]}
    body = {
        "metadata": {"name": name, "labels": {"bench": "short"}},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
    }
    async with slots:
        await client.create(Pod, body, "default")
        async with asyncio.timeout(60):
            await finished.wait()
        await client.delete(Pod, name, "default")


async def _bare_processes() -> float:
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def run_process() -> None:
        async with slots:
            await (await asyncio.create_subprocess_exec("true")).wait()

    start = time.perf_counter()
    await asyncio.gather(*(run_process() for _ in range(SHORT_PODS)))
    return time.perf_counter() - start


def _best(command: list[object], times: int) -> float:
    """Return the shortest of several runs: other load of the machine only adds time."""
    runs = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        runs.append(time.perf_counter() - start)
    return min(runs)
