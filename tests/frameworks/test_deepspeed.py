import re

import pytest
from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.frameworks.deepspeed import HOST_FILE, DeepSpeed
from argosy.frameworks.mpi import HOST_FILE as MPI_HOST_FILE
from argosy.frameworks.mpi import IDLE_COMMAND
from argosy.workload.model import Elastic, ResizeMode, Role, Workload
from tests.support.workloads import role, workload

DEEPSPEED = DeepSpeed()
LAUNCHER, WORKER = role("launcher", 1, policy=None), role("worker", 2, policy=None)
REQUIRED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
"""Without these `deepspeed.init_distributed` looks for MPI."""
LINE = re.compile(r"^(\S+)\s+slots=(\d+)")
"""As DeepSpeed reads its host file, a line at a time."""


def job(*roles: Role, **options: object) -> Workload:
    return DEEPSPEED.defaults(replace(workload(*roles), framework="deepspeed", options=options))


def injection(workload: Workload, name: str, index: int = 0) -> Injection:
    return DEEPSPEED.inject(workload, workload.roles[name], index)


def hosts(injected: Injection) -> dict[str, int]:
    matches = [LINE.match(line) for line in injected.files[HOST_FILE].splitlines()]
    return {match[1]: int(match[2]) for match in matches if match}


def at(index: int) -> str:
    return f"job-worker-{index}.job-worker.ns.svc.cluster.local"


def test_without_a_launcher_pods_get_pytorchs_variables() -> None:
    env = injection(job(WORKER, port=5), "worker", 1).env
    assert [env[name] for name in REQUIRED] == ["1", "2", at(0), "5", "0"]


@pytest.mark.parametrize("index", [0, 1])
def test_every_pod_has_the_host_file_at_deepspeeds_default_path(index: int) -> None:
    assert hosts(injection(job(WORKER, procsPerNode=4), "worker", index)) == {at(0): 4, at(1): 4}


def test_procs_per_node_are_slots_in_the_host_file() -> None:
    env = injection(job(replace(WORKER, slots=2)), "worker", 1).env
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("2", "4", "2")
    assert hosts(injection(job(replace(WORKER, slots=2)), "worker")) == {at(0): 2, at(1): 2}


def test_with_a_launcher_pods_are_set_up_as_for_mpi() -> None:
    workload = job(LAUNCHER, WORKER, procsPerNode=2, implementation="mpich")
    launcher = injection(workload, "launcher")
    assert hosts(launcher) == {at(0): 2, at(1): 2}
    assert launcher.files[MPI_HOST_FILE] == "job-worker-0:2\njob-worker-1:2\n"
    assert launcher.remote_exec
    assert injection(workload, "worker").default_command == IDLE_COMMAND
    assert DEEPSPEED.rules(workload).succeeded_when == (("launcher",),)


@pytest.mark.parametrize("size", [2, 4])
def test_elastic_workers_have_a_static_group_of_their_size_and_restart_with_a_new_one(size: int) -> None:
    elastic = job(replace(WORKER, replicas=size, elastic=Elastic(2, 4, 2)))
    last = injection(elastic, "worker", size - 1)
    assert [last.env[name] for name in REQUIRED] == [str(size - 1), str(size), at(0), "29500", "0"]
    assert hosts(last) == {at(index): 1 for index in range(size)}
    assert DEEPSPEED.rules(elastic).resize is ResizeMode.RESTART
    assert list(DEEPSPEED.check(elastic)) == []


def test_elastic_workers_with_a_launcher_restart_with_a_new_size() -> None:
    elastic = job(LAUNCHER, replace(WORKER, elastic=Elastic(1, 4)))
    assert DEEPSPEED.rules(elastic).resize is ResizeMode.RESTART
    assert list(DEEPSPEED.check(elastic)) == []


def test_without_a_launcher_all_workers_must_succeed() -> None:
    assert DEEPSPEED.rules(job(WORKER)).succeeded_when == (("worker",),)


PROBLEMS = {
    "no worker: rejected": (job(LAUNCHER), "spec.roles: framework deepspeed requires a role 'worker'"),
    "two launchers: rejected": (
        job(role("launcher", 2), WORKER),
        "spec.roles.launcher.replicas: invalid value 2: must be 1",
    ),
}


@pytest.mark.parametrize(("workload", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(workload: Workload, want: str) -> None:
    problems = [str(problem) for problem in DEEPSPEED.check(workload)]
    assert problems[0] == want
    assert problems.count(want) == 1
