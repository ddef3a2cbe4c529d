"""Programs in examples/checkpoint with two ranks: one is killed at random, the result is the same."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands import REPOSITORY
from tests.support.framework_venvs import Environment
from tests.support.servers import free_port

EXAMPLES = REPOSITORY / "examples" / "checkpoint"
DEBIAN = "/usr/bin/python3"
STEPS = 16
RANKS = 2

Starter = Callable[[Path], list[subprocess.Popen[str]]]


def spawn(words: Sequence[str], folder: Path, variables: Mapping[str, str] = {}) -> subprocess.Popen[str]:
    """Start a process in a session of its own, with a checkpoint after every step."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "src"),
        "ARGOSY_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "ARGOSY_CHECKPOINT_INTERVAL": "0",
        **variables,
    }
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [*words, str(STEPS)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def mpi(folder: Path) -> list[subprocess.Popen[str]]:
    mpiexec = Path(sys.executable).parent / "mpiexec"
    return [spawn([str(mpiexec), "-n", str(RANKS), sys.executable, str(EXAMPLES / "mpi_train.py")], folder)]


def pytorch(folder: Path) -> list[subprocess.Popen[str]]:
    port = str(free_port())
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    program = [DEBIAN, str(EXAMPLES / "ddp.py")]
    return [spawn(program, folder, {**shared, "RANK": str(rank)}) for rank in range(RANKS)]


def jax(folder: Path) -> list[subprocess.Popen[str]]:
    address = f"127.0.0.1:{free_port()}"
    shared = {"JAX_NUM_PROCESSES": str(RANKS), "JAX_COORDINATOR_ADDRESS": address}
    program = [str(Environment("jax").python), str(EXAMPLES / "jax_train.py")]
    return [spawn(program, folder, {**shared, "JAX_PROCESS_ID": str(rank)}) for rank in range(RANKS)]


def tensorflow(folder: Path) -> list[subprocess.Popen[str]]:
    cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(RANKS)]}
    configs = [{"cluster": cluster, "task": {"type": "worker", "index": rank}} for rank in range(RANKS)]
    program = [str(Environment("tensorflow").python), str(EXAMPLES / "tf_train.py")]
    return [spawn(program, folder, {"TF_CONFIG": json.dumps(config)}) for config in configs]


def missing(framework: str) -> str:
    if framework == "pytorch":
        found = subprocess.run([DEBIAN, "-c", "import torch"], check=False, capture_output=True)
        return "" if found.returncode == 0 else "Debian's python3-torch is not installed"
    return Environment(framework).missing if framework != "mpi" else ""


def run(processes: list[subprocess.Popen[str]], lines: int, victim: int) -> list[str]:
    """Read what rank 0 prints; after so many lines kill one process, and then the others."""
    output = []
    stdout = processes[0].stdout
    assert stdout is not None
    for line in stdout:
        if line.startswith(("step", "continuing", "found")):
            output.append(line.strip())
        if lines and len(output) == lines:
            kill(processes[victim % len(processes)])
            break
    if lines:
        for process in processes:
            kill(process)
    for process in processes:
        process.communicate(timeout=100)
    return output


def kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


LONG = [
    pytest.param(start, 2, id=start.__name__, marks=pytest.mark.long)
    for start in (mpi, pytorch, jax, tensorflow)
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("start", "kills"), [pytest.param(mpi, 1, id="mpi, killed once"), *LONG])
def test_ranks_that_are_killed_end_with_the_same_result(tmp_path: Path, start: Starter, kills: int) -> None:
    if problem := missing(start.__name__):
        pytest.skip(problem)
    undisturbed = run(start(tmp_path / "undisturbed"), 0, 0)
    assert undisturbed, (tmp_path / "undisturbed" / "log").read_text()
    want = undisturbed[-1]
    assert want.startswith("found the slope [")
    drawn = random.Random(7)
    resumed = 0
    for _ in range(kills):
        output = run(start(tmp_path), drawn.randrange(STEPS // 2, STEPS), drawn.randrange(RANKS))
        resumed += output[0].startswith("continuing after step")
    output = run(start(tmp_path), 0, 0)
    assert output[-1] == want
    assert resumed + output[0].startswith("continuing after step") > 0
    assert not list((tmp_path / "checkpoints").glob("*.tmp"))
