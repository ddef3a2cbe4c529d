"""A real torchrun job on the local control plane: how soon it trains again after a worker was killed.

Nearly all of that time is torchrun's own: it notices the loss, forms its group again, and the new processes
import PyTorch. So it is measured apart, as the bound: the same program without Argosy, two torchrun processes
of which one is killed and started again at once. The other one has the store of the group, as worker 0 has.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import cast

import msgspec
import yaml
from msgspec import Struct, field

from argosy.cli.local_mounts import Manifest, mount_working_dir, with_variables
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Pod
from argosy.kinds.trainingrun import TrainingRun
from bench.cli import ARGOSY
from bench.figures import Figure
from bench.load import wait_until_open
from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.servers import free_port

NAME, NAMESPACE = "elastic-torch", "default"
KILLED = f"{NAME}-worker-1"
WORKERS = 2
PYTHON = Path("/usr/bin/python3")
VARIABLES = {
    "STEPS": "1000000",
    "PACE": "0.02",
    "COMMIT": "1",
    # Seconds that torchrun waits for more workers than the minimum, and between looks at its processes. The
    # defaults are 30 s, and 5 s up to PyTorch 2.2.
    "PET_RDZV_CONF": "last_call_timeout=1",
    "PET_MONITOR_INTERVAL": "0.1",
}
ROUNDS = 3
TIMEOUT_SECONDS = 120.0
MAX_SECONDS = 5.0
"""Beyond the time that torchrun takes by itself."""


class Times(Struct, frozen=True):
    """Seconds since a worker was killed."""

    replaced: float
    """A new pod, or process, runs in its place."""
    trains: float
    """A step was committed by a group that was formed after the loss."""
    complete: float
    """A step was committed by all workers."""


class State(Struct):
    """What rank 0 has committed."""

    step: int = 0
    workers: list[int] = field(default_factory=list)


def measure() -> Iterator[Figure]:
    if problem := examples.missing(examples.ELASTIC_TORCH):
        print(f"torch: skipped: {problem}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        plain = [_lose_process(Path(folder) / f"plain-{number}") for number in range(ROUNDS)]
        pods = _on_local_control_plane(Path(folder))
    bound_is = "torchrun alone, started again at once"
    bound = median(times.trains for times in plain)
    yield Figure("torch_rendezvous_s", bound, "s", bound, "itself: " + bound_is, None)
    trains = median(times.trains for times in pods)
    yield Figure("torch_trains_again_s", trains, "s", bound, bound_is, None)
    beyond = max(trains - bound, 0.0)
    yield Figure("torch_beyond_rendezvous_s", beyond, "s", bound, bound_is, MAX_SECONDS)
    complete, bound = (median(times.complete for times in both) for both in (pods, plain))
    yield Figure("torch_all_workers_train_s", complete, "s", bound, bound_is, None)
    replaced, bound = (median(times.replaced for times in both) for both in (pods, plain))
    yield Figure("torch_worker_replaced_s", replaced, "s", bound, "a process is started", None)


def _on_local_control_plane(folder: Path) -> list[Times]:
    environment = {**os.environ, "ARGOSY_HOME": str(folder / "home")}
    environment.pop("KUBECONFIG", None)
    try:
        subprocess.run([ARGOSY, "up"], env=environment, check=True, capture_output=True)
        return asyncio.run(_lose_pods(folder / "home" / "local" / "kubeconfig", folder))
    finally:
        subprocess.run([ARGOSY, "down", "--delete"], env=environment, check=False, capture_output=True)


async def _lose_pods(kubeconfig: Path, folder: Path) -> list[Times]:
    """Lose one pod in each of several runs: a second loss in the same run waits for the restart backoff."""
    times = []
    async with Client(Connection.from_kubeconfig(kubeconfig)) as client:
        for number in range(ROUNDS):
            state = folder / f"state-{number}"
            state.mkdir()
            await client.create(TrainingRun, _manifest(state), NAMESPACE)
            await asyncio.to_thread(_wait_until_complete, state)
            times.append(await _lose_pod(client, state))
            await client.delete(TrainingRun, NAME, NAMESPACE)
            await _wait_until_deleted(client)
    return times


async def _wait_until_deleted(client: Client) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (await client.list(Pod, NAMESPACE)).items:
        _check(deadline, "the pods are deleted")


def _manifest(state: Path) -> Manifest:
    """Return the example with a folder for its state, and a file in each container with torchrun's pid."""
    document: Manifest = yaml.safe_load((REPOSITORY / examples.ELASTIC_TORCH).read_text())
    document = mount_working_dir(document, REPOSITORY, Path("/usr"), PYTHON, os.environ)
    document = with_variables(document, {**VARIABLES, "STATE": str(state)})
    spec = cast("Manifest", document["spec"])
    spec["limits"] = {"restarts": 10 * ROUNDS}
    pod = spec["roles"]["worker"]["template"]["spec"]  # type: ignore[index]
    container = pod["containers"][0]
    remember = 'echo $$$$ > /tmp/agent; exec "$@"'  # Kubernetes makes $$ of it
    container["command"] = ["sh", "-c", remember, "sh", *container["command"]]
    pod["volumes"].append({"name": "state", "hostPath": {"path": str(state)}})
    container["volumeMounts"].append({"name": "state", "mountPath": str(state)})
    return document


async def _lose_pod(client: Client, state: Path) -> Times:
    """Kill torchrun in a worker, with which its container ends."""
    before = (await client.get(Pod, KILLED, NAMESPACE)).metadata.uid
    kill = ["sh", "-c", 'kill -9 "$(cat /tmp/agent)"']
    start = time.perf_counter()
    with contextlib.suppress(Exception):  # the connection may end with the container
        await client.exec(KILLED, NAMESPACE, kill)
    return await asyncio.to_thread(
        _times, state, start, lambda: asyncio.run(_is_replaced(client.connection, before))
    )


async def _is_replaced(connection: Connection, before: str) -> bool:
    async with Client(connection) as client:
        pods = (await client.list(Pod, NAMESPACE, fields=f"metadata.name={KILLED}")).items
    return any(pod.metadata.uid != before and pod.status.phase == "Running" for pod in pods)


def _lose_process(state: Path) -> Times:
    """Kill one of two torchrun processes, with all of its children, and start it again."""
    port = free_port()
    with _torchrun(state, port, "first"):
        wait_until_open(port)
        with _torchrun(state, port, "second") as second:
            _wait_until_complete(state)
            start = time.perf_counter()
            os.killpg(second.pid, signal.SIGKILL)
            second.wait()
            with _torchrun(state, port, "third"):
                return _times(state, start, lambda: True)


@contextlib.contextmanager
def _torchrun(state: Path, port: int, name: str) -> Iterator[subprocess.Popen[bytes]]:
    rendezvous = ("--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{port}")
    command = [str(PYTHON), "-m", "torch.distributed.run", "--nnodes=1:4", "--nproc_per_node=1"]
    # Debian's PyTorch needs its output redirected and copied.
    command += [*rendezvous, "--max_restarts=100", "--redirects=1", "--tee=1", f"--log_dir={state}-{name}"]
    command.append(str(REPOSITORY / Path(examples.ELASTIC_TORCH).parent / "train.py"))
    with subprocess.Popen(
        command,
        env={**os.environ, **VARIABLES, "STATE": str(state)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _times(state: Path, start: float, is_replaced: Callable[[], bool]) -> Times:
    """Wait until the worker is replaced, and then until the group trains with all workers.

    The group cannot form again before that, so steps that were committed before are those of the old group.
    The step that it was computing may be committed a little later, and does not count either.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_replaced():
        _check(deadline, "the worker is replaced")
    replaced, last = time.perf_counter() - start, _read(state).step + 1
    trains = complete = 0.0
    while not complete:
        now, current = time.perf_counter() - start, _read(state)
        if current.step > last:
            trains = trains or now
            complete = now if current.workers[-1] == WORKERS else 0.0
        _check(deadline, f"the training continues after step {last}, with {current.workers[-3:]} workers")
    return Times(replaced, trains, complete)


def _wait_until_complete(state: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while _read(state).workers[-20:] != [WORKERS] * 20:
        _check(deadline, f"{WORKERS} workers train")


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"timeout: {what}")
    time.sleep(0.01)


def _read(state: Path) -> State:
    file = state / "state.json"
    return msgspec.json.decode(file.read_bytes(), type=State) if file.exists() else State()
