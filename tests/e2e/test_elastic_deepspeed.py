"""DeepSpeed, without GPUs, with workers that change in number: what it reads is right at each size.

DeepSpeed itself reads the host file, and computes from its setting `elasticity` a batch that is the same at
every allowed number of processes. So the training's result must not depend on the sizes that it had.
"""

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from argosy.kinds import labels
from tests.support import examples, framework_venvs
from tests.support.local_control_plane import ControlPlane
from tests.support.servers import free_port
from tests.support.user import Json
from tests.support.waiting import wait_for

NAME = "elastic-deepspeed"
SETTING = {
    "enabled": True,
    "version": 0.1,
    "min_gpus": 1,
    "max_gpus": 4,
    "max_train_batch_size": 8,
    "micro_batch_sizes": [1, 2, 4],
}
PROGRAM = f"""
import argparse, os, pathlib, time
import deepspeed, torch
from deepspeed.launcher.runner import fetch_hostfile

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
parser.parse_args()
folder, last = pathlib.Path(os.environ["STATE"]), int(os.environ["STEPS"])
checkpoints = folder / "checkpoints"
config = {{"elasticity": {SETTING}, "zero_optimization": {{"stage": 0}}}}
slope = torch.tensor([[2.0], [-1.0], [0.5]])
# Shared memory between the processes of a pod: it would be compiled at the first start.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed(dist_backend="gloo")
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
step = 0
if (checkpoints / "latest").exists():
    step = engine.load_checkpoint(str(checkpoints))[1]["step"]
batch, micro = engine.train_batch_size(), engine.train_micro_batch_size_per_gpu()
rounds = engine.gradient_accumulation_steps()
if rank == 0:
    hosts = dict(fetch_hostfile("/job/hostfile") or {{}})
    print("started", [size, step, batch, micro * rounds * size, hosts], flush=True)
stop = False
while step < last and not stop:
    random = torch.randn(batch, 3, generator=torch.Generator().manual_seed(step))
    for turn in range(rounds):
        first = (turn * size + rank) * micro
        points = random[first : first + micro]
        loss = torch.nn.functional.mse_loss(engine(points), points @ slope + 3.0)
        engine.backward(loss)
        engine.step()
    step += 1
    stopped = torch.tensor([float(rank == 0 and (folder / "stop").exists())])
    torch.distributed.all_reduce(stopped)
    stop = bool(stopped)
    if step % 5 == 0 or stop or step == last:
        engine.save_checkpoint(str(checkpoints), tag=f"step-{{step}}", client_state={{"step": step}})
    time.sleep(float(os.environ["PACE"]))
if rank == 0:
    weights = [*model.weight.detach().flatten().tolist(), *model.bias.detach().tolist()]
    print("finished", [step, *weights], flush=True)
"""
COMMAND = """
exec deepspeed --no_ssh --node_rank $PET_NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT \
  $STATE/train.py
"""
HOST_LISTS = """
import time
from deepspeed.launcher.runner import fetch_hostfile
while True:
    print("hosts", dict(fetch_hostfile("/job/hostfile")), flush=True)
    time.sleep(1)
"""

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(590)]


def lists_after(word: str, output: str) -> list[list[object]]:
    """The lists that the program has printed after a word, in order."""
    return [ast.literal_eval(found) for found in re.findall(rf"{word} (\[.*\])", output)]


class Training:
    """A TrainingRun of DeepSpeed, with a folder for its state that the test reads."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder

    def start(self) -> None:
        (self.folder / "train.py").write_text(PROGRAM)
        variables = {"STATE": str(self.folder), "STEPS": "100000", "PACE": "0.1", "DS_ACCELERATOR": "cpu"}
        container = {
            "name": "main",
            "image": "local",
            "command": ["sh", "-c", COMMAND],
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "volumeMounts": [{"name": "state", "mountPath": str(self.folder)}],
        }
        volumes = [{"name": "state", "hostPath": {"path": str(self.folder)}}]
        worker: Json = {
            "replicas": 2,
            "elastic": {"min": 2, "max": 4, "multipleOf": 2},
            "template": {
                "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 2}
            },
        }
        run: Json = {
            "apiVersion": "argosy.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": NAME},
            "spec": {"framework": "deepspeed", "roles": {"worker": worker}},
        }
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(examples.with_mounts(run, "deepspeed")))

    @property
    def output(self) -> str:
        return self.plane.kubectl("logs", f"{NAME}-worker-0", "-c", "main", code=None).stdout

    @property
    def status(self) -> Json:
        return cast("Json", self.plane.get("tr", NAME).get("status", {}))

    def checkpoints(self) -> int:
        return len(list(self.folder.glob("checkpoints/step-*")))

    def wait_until_started_with(self, size: int) -> int:
        """Wait for new checkpoints of as many processes; returns the step from which they continued."""
        self.wait_for(lambda: any(start[0] == size for start in self.starts()), f"{size} processes")
        saved = self.checkpoints()
        self.wait_for(lambda: self.checkpoints() > saved, "a checkpoint")
        found, step, batch, product, hosts = self.starts()[-1]
        wanted = {f"{NAME}-worker-{index}" for index in range(size)}
        assert {host.partition(".")[0] for host in cast("dict[str, int]", hosts)} == wanted
        assert set(cast("dict[str, int]", hosts).values()) == {1}
        assert (found, batch, product) == (size, 8, 8), "the batch is the same at every size"
        return cast("int", step)

    def starts(self) -> list[list[object]]:
        return lists_after("started", self.output)

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        def explain() -> str:
            described = self.plane.argosy("describe", NAME, code=None).stdout
            return f"{what}\n{described}\n{self.output[-4000:]}"

        wait_for(condition, explain, 180)


def undisturbed(folder: Path, steps: int) -> list[float]:
    """The weights after as many steps in one process."""
    venv = framework_venvs.of_framework("deepspeed")
    assert venv is not None
    alone = folder / "alone"
    alone.mkdir()
    variables = {"STATE": str(alone), "STEPS": str(steps), "PACE": "0", "DS_ACCELERATOR": "cpu"}
    variables |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [str(venv.python), str(folder / "train.py")]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return cast("list[float]", lists_after("finished", done.stdout)[0])


@pytest.fixture
def training(plane: ControlPlane, tmp_path: Path) -> Iterator[Training]:
    examples.require("examples/deepspeed/run.yaml")
    yield Training(plane, tmp_path)
    plane.kubectl("delete", "tr", NAME, "--ignore-not-found")
    plane.kubectl("wait", "--for=delete", "pod", "-l", f"{labels.JOB}={NAME}", "--timeout=60s", code=None)


def test_training_continues_from_its_checkpoint_at_every_allowed_size(training: Training) -> None:
    training.start()
    assert training.wait_until_started_with(2) == 0
    rejected = training.plane.kubectl("scale", f"tr/{NAME}", "--replicas=3", code=1).stderr
    assert "replicas 3 is not a multiple of 2" in rejected, (
        "DeepSpeed would end with an incompatible world size"
    )
    training.plane.kubectl("scale", f"tr/{NAME}", "--replicas=4")
    grown = training.wait_until_started_with(4)
    training.plane.kubectl("scale", f"tr/{NAME}", "--replicas=2")
    shrunk = training.wait_until_started_with(2)
    assert 0 < grown < shrunk
    (training.folder / "stop").touch()
    training.wait_for(lambda: training.status.get("phase") in ("Succeeded", "Failed"), "the training ends")
    status = training.status
    assert (status["phase"], status["attempt"], status.get("restarts", 0)) == ("Succeeded", 3, 0)
    finished = cast("list[float]", lists_after("finished", training.output)[0])
    alone = undisturbed(training.folder, int(finished[0]))
    assert finished == pytest.approx(alone, rel=1e-3, abs=1e-4)


def test_deepspeed_reads_the_current_workers_of_a_training_job(plane: ControlPlane) -> None:
    examples.require("examples/deepspeed/run.yaml")
    launcher = {"name": "main", "image": "local", "command": ["python", "-c", HOST_LISTS]}
    job: Json = {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": NAME},
        "spec": {
            "launcherAttachMode": "kubexec",
            "slotsPerWorker": 2,
            "etReplicaSpecs": {
                "launcher": {"template": {"spec": {"containers": [launcher]}}},
                "worker": {
                    "replicas": 2,
                    "maxReplicas": 4,
                    "template": {"spec": {"containers": [{"name": "main", "image": "local"}]}},
                },
            },
        },
    }

    def output() -> str:
        return plane.kubectl("logs", f"{NAME}-launcher", "-c", "main", code=None).stdout

    def wait_for_workers(size: int) -> None:
        wanted = {f"{NAME}-worker-{index}": 2 for index in range(size)}
        wait_for(lambda: (re.findall(r"hosts (.*)", output()) or [""])[-1] == str(wanted), output, 120)

    plane.kubectl("apply", "-f", "-", stdin=json.dumps(examples.with_mounts(job, "deepspeed")))
    try:
        for size in (2, 4, 1, 3):
            plane.kubectl("scale", f"trainingjob/{NAME}", f"--replicas={size}")
            wait_for_workers(size)
    finally:
        plane.kubectl("delete", "trainingjob", NAME)
