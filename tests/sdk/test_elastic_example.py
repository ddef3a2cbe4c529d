"""examples/checkpoint/elastic.py: workers are killed and their number changes, but not the result."""

import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sdk.test_ranked_examples import DEBIAN, EXAMPLES, missing
from tests.support.commands import REPOSITORY
from tests.support.servers import free_port
from tests.support.waiting import wait_for

STEPS = 300
GROUP_SECONDS = 180.0
"""How long a group may take to form on a busy machine, where each worker imports PyTorch first."""
STEPS_BETWEEN = 20
"""How many steps a group makes before it is disturbed; it saves a few times meanwhile."""
_STEP = re.compile(r"step (\d+)\n")
_FORMED = re.compile(r"(\d) workers, from step (\d+)")
_RESULT = re.compile(r"found the slope \[(.*)\]")


class Group:
    """Some torchrun agents with one worker each, which share a folder for checkpoints."""

    def __init__(self, folder: Path, pace: float) -> None:
        self.folder = folder
        self.pace = pace
        self.port = free_port()
        self.agents: list[subprocess.Popen[bytes]] = []
        self._known = 0
        """Groups that have been waited for."""
        folder.mkdir(exist_ok=True)

    def add(self, count: int) -> None:
        """Start more agents, and wait until all train together."""
        for _ in range(count):
            self.agents.append(self._start())
        self.wait_until_formed(len(self.agents))

    def kill_worker(self, agent: int) -> None:
        """Kill the process that trains; its agent stays, and the group forms anew."""
        pid = self.agents[agent].pid
        [worker] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)
        self.wait_until_formed(len(self.agents))

    def kill_agent(self, agent: int) -> None:
        """Kill an agent with its worker; the others go on."""
        self._kill(self.agents.pop(agent))
        self.wait_until_formed(len(self.agents))

    def kill_all(self) -> None:
        while self.agents:
            self._kill(self.agents.pop())

    def wait_until_formed(self, workers: int) -> None:
        """Wait until a group of so many has formed that was not there when the last one was looked for."""
        known = self._known

        def formed() -> bool:
            codes = [agent.poll() for agent in self.agents]
            assert not any(codes), self.output()[-4000:]
            sizes = [int(size) for size, _ in self.formations()]
            return workers in sizes[known:]

        wait_for(formed, lambda: f"{workers} workers; {self.output()[-4000:]}", GROUP_SECONDS)
        self._known = len(self.formations())
        *_, (_, first) = self.formations()
        wait_for(lambda: self.last_step() >= int(first) + STEPS_BETWEEN, lambda: self.output()[-4000:])

    def formations(self) -> list[tuple[str, str]]:
        """Return the number of workers and the first step of all groups, in their order."""
        return _FORMED.findall(self.output())

    def last_step(self) -> int:
        """Return the step that the last group has reached."""
        return max(map(int, _STEP.findall(_FORMED.split(self.output())[-1])), default=0)

    def output(self) -> str:
        """Return what all have printed."""
        return (self.folder / "log").read_text()

    def result(self) -> list[float]:
        """Wait until the training ends; return the slope that was found."""
        for agent in self.agents:
            assert agent.wait(GROUP_SECONDS) == 0, self.output()[-4000:]
        [slope] = _RESULT.findall(self.output())
        return [float(number) for number in slope.split(",")]

    def _start(self) -> subprocess.Popen[bytes]:
        rendezvous = ["--rdzv_backend=c10d", "--rdzv_id=slope", "--rdzv_conf=last_call_timeout=1"]
        size = ["--nnodes=2:4", "--nproc_per_node=1", "--max_restarts=100"]
        # Debian's torch 1.13 on Python 3.11 needs its output redirected and copied.
        torchrun = [DEBIAN, "-m", "torch.distributed.run", *size, *rendezvous, "--redirects=1", "--tee=1"]
        program = [str(EXAMPLES / "elastic.py"), str(STEPS)]
        environ = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY / "src"),
            "ARGOSY_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "ARGOSY_CHECKPOINT_INTERVAL": "0.2",
            "PACE": str(self.pace),
            "TMPDIR": str(self.folder),
            "OMP_NUM_THREADS": "1",
        }
        with (self.folder / "log").open("a") as log:
            return subprocess.Popen(
                [*torchrun, f"--rdzv_endpoint=127.0.0.1:{self.port}", *program],
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @staticmethod
    def _kill(agent: subprocess.Popen[bytes]) -> None:
        """Kill an agent and its worker, which is in a session of its own."""
        children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
        for pid in (*children.read_text().split(), str(agent.pid)) if children.exists() else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        agent.wait(60)


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    started: list[Group] = []
    yield started
    for group in started:
        group.kill_all()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_workers_that_come_and_go_end_with_the_same_result(tmp_path: Path, groups: list[Group]) -> None:
    if problem := missing("pytorch"):
        pytest.skip(problem)
    undisturbed = Group(tmp_path / "undisturbed", 0.0)
    groups.append(undisturbed)
    undisturbed.add(2)
    want = undisturbed.result()
    drawn = random.Random(7)
    group = Group(tmp_path / "disturbed", 0.1)
    groups.append(group)
    group.add(2)
    group.add(2)
    for _ in range(2):
        group.kill_worker(drawn.randrange(4))
    group.kill_agent(drawn.randrange(1, 4))  # the first one hosts the rendezvous
    group.kill_all()
    last = Group(tmp_path / "disturbed", 0.0)
    groups.append(last)
    last.add(2)
    assert last.result() == pytest.approx(want, abs=1e-4)
    sizes = [int(size) for size, _ in last.formations()]
    assert {2, 3, 4} <= set(sizes)
    assert int(last.formations()[-1][1]) > 0, "it continued from a checkpoint"
    assert not list((tmp_path / "disturbed" / "checkpoints").glob("*.tmp"))
