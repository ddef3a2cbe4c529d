"""`agree` with the frameworks that this machine has."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from argosy_sdk import CheckpointError, agree
from tests.support.commands import REPOSITORY
from tests.support.framework_venvs import Environment
from tests.support.servers import free_port

DEBIAN = "/usr/bin/python3"
TORCH = """
import torch.distributed as dist
from argosy_sdk import agree
dist.init_process_group("gloo")
print(agree({"rank": dist.get_rank()}), flush=True)
dist.destroy_process_group()
"""
JAX = """
import jax, os
from argosy_sdk import agree
jax.distributed.initialize(os.environ["COORDINATOR"], 2, int(os.environ["RANK"]))
print(agree({"rank": jax.process_index()}), flush=True)
jax.distributed.shutdown()
"""
MPI = """
from mpi4py import MPI
from argosy_sdk import agree
print(agree({"rank": MPI.COMM_WORLD.Get_rank()}), flush=True)
"""


class Group:
    """Stands for torch.distributed in a process whose rank 0 is elsewhere and has this value."""

    def __init__(self, value: object) -> None:
        self.value = value

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def broadcast_object_list(self, values: list[object], src: int) -> None:
        values[src] = self.value


def test_pod_that_has_restored_another_checkpoint_than_rank_0_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "step-5-0123456789ab", tmp_path / "step-9-0123456789ab"
    own.mkdir()
    monkeypatch.setitem(sys.modules, "torch.distributed", Group(other))
    assert agree(own) == other, "in a folder that all share it is only not visible yet"
    monkeypatch.setenv("ARGOSY_CHECKPOINT_SHARED", "0")
    with pytest.raises(CheckpointError, match="step-9-0123456789ab, which this pod does not have"):
        agree(own)
    monkeypatch.setitem(sys.modules, "torch.distributed", Group(own))
    assert agree(own) == own
    monkeypatch.setitem(sys.modules, "torch.distributed", Group(None))
    assert agree(own) is None


def outputs(python: str, program: str, commands: Sequence[Sequence[str]] = ((), ())) -> list[str]:
    """Run a program as two ranks; returns the last line of each."""
    port = free_port()
    processes = []
    for rank, before in enumerate(commands):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        environ = {
            **os.environ,
            **variables,
            "COORDINATOR": f"127.0.0.1:{port}",
            "PYTHONPATH": str(REPOSITORY / "src"),
        }
        command = [*before, python, "-c", program]
        processes.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
    return [process.communicate(timeout=100)[0].splitlines()[-1] for process in processes]


@pytest.mark.long
def test_pytorch() -> None:
    if subprocess.run([DEBIAN, "-c", "import torch"], check=False, capture_output=True).returncode != 0:
        pytest.skip("Debian's python3-torch is not installed")
    assert outputs(DEBIAN, TORCH) == ["{'rank': 0}"] * 2


@pytest.mark.long
def test_jax() -> None:
    environment = Environment("jax")
    if environment.missing:
        pytest.skip(environment.missing)
    assert outputs(str(environment.python), JAX) == ["{'rank': 0}"] * 2


def test_mpi() -> None:
    mpiexec = Path(sys.executable).parent / "mpiexec"
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    command = [str(mpiexec), "-n", "2", sys.executable, "-c", MPI]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=100)
    assert re.findall(r"'rank': (.)", ran.stdout) == ["0", "0"]


def test_one_process_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "PMI_RANK", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert agree(7) == 7


def test_several_processes_without_a_framework_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_RANK", "0")
    monkeypatch.setenv("ARGOSY_WORLD_SIZE", "2")
    with pytest.raises(CheckpointError, match=r"agree: 2 processes, but none of torch\.distributed, mpi4py"):
        agree(7)
