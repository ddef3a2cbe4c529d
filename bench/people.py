"""What a person waits for: help, a control plane, the first line of output, many short pods."""

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
SHORT_PODS, AT_ONCE = 200, 50


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
    took = _best([ARGOSY, "--help"], 5)
    bound = _best([sys.executable, "-c", ""], 5)
    return Figure("help_ms", took * 1000, "ms", bound * 1000, "Python that does nothing", 150)


def _up(environment: dict[str, str]) -> Figure:
    began = time.perf_counter()
    subprocess.run([ARGOSY, "up"], env=environment, check=True, capture_output=True)
    took = time.perf_counter() - began
    bound = _best([sys.executable, "-c", "import argosy.wire.client, msgspec"], 3)
    return Figure("up_ready_s", took, "s", bound, "Python that imports an HTTP client", 2.0)


def _first_output(environment: dict[str, str]) -> Figure:
    """From the start of the command to the line on the user's terminal; the better of two."""
    command = [ARGOSY, "run", "--replicas", "2", "--", "echo", "the first line"]
    took = min(_until_line(command, "the first line", environment) for _ in range(2))
    bound = _until_line(["sh", "-c", "echo the first line"], "the first line", environment)
    return Figure("first_output_s", took, "s", bound, "the same by a shell", 1.5)


def _until_line(command: list[object], wanted: str, environment: dict[str, str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if wanted in line:
                took = time.perf_counter() - began
                process.stdout.read()
                return took
    raise RuntimeError(f"{command} never printed {wanted!r}")


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
        room = asyncio.Semaphore(AT_ONCE)
        began = time.perf_counter()
        await asyncio.gather(*(_one_pod(client, name, event, room) for name, event in finished.items()))
        took = time.perf_counter() - began
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    return Figure("pods_200_s", took, "s", await _bare_processes(), "the same commands alone", 15.0)


async def _one_pod(client: Client, name: str, finished: asyncio.Event, room: asyncio.Semaphore) -> None:
    container = {"name": "main", "image": "local", "command": ["true"]}
    body = {
        "metadata": {"name": name, "labels": {"bench": "short"}},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
    }
    async with room:
        await client.create(Pod, body, "default")
        async with asyncio.timeout(60):
            await finished.wait()
        await client.delete(Pod, name, "default")


async def _bare_processes() -> float:
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with room:
            await (await asyncio.create_subprocess_exec("true")).wait()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(SHORT_PODS)))
    return time.perf_counter() - began


def _best(command: list[object], times: int) -> float:
    """The shortest of several runs: what the machine adds is never less than nothing."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    return min(taken)
