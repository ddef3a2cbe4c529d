import pytest
from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.frameworks.horovod import Horovod
from argosy.frameworks.mpi import HOST_FILE, IDLE_COMMAND, SSHD, Mpi
from argosy.workload.model import Role, Workload
from tests.support.workloads import role, workload

HOROVOD = Horovod()
ROLES = (role("launcher", 1, policy=None), role("worker", 2, policy=None))


def job(*roles: Role, **options: object) -> Workload:
    return HOROVOD.defaults(replace(workload(*(roles or ROLES)), framework="horovod", options=options))


def injection(workload: Workload, name: str) -> Injection:
    return HOROVOD.inject(workload, workload.roles[name], 0)


def test_pods_are_set_up_as_for_mpi() -> None:
    workload = job(slotsPerWorker=2)
    assert injection(workload, "launcher") == Mpi().inject(workload, workload.roles["launcher"], 0)
    assert injection(workload, "launcher").files == {
        HOST_FILE: "job-worker-0 slots=2\njob-worker-1 slots=2\n"
    }
    assert injection(workload, "launcher").remote_exec
    assert injection(workload, "worker").default_command == IDLE_COMMAND
    assert HOROVOD.rules(workload) == Mpi().rules(workload)


def test_ssh_keys_are_used_as_for_mpi() -> None:
    workload = job(sshKeys=True, controller="gloo")
    assert HOROVOD.rules(workload).ssh_roles == ("launcher", "worker")
    assert injection(workload, "worker").default_command == SSHD
    assert not injection(workload, "launcher").remote_exec


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
@pytest.mark.parametrize("name", ["launcher", "worker"])
def test_all_ranks_get_the_configured_controller(controller: str, name: str) -> None:
    env = injection(job(controller=controller), name).env
    assert env["HOROVOD_CONTROLLER"] == env["HOROVOD_CPU_OPERATIONS"] == controller


def test_without_a_controller_no_variable_is_set() -> None:
    assert not [key for key in injection(job(), "launcher").env if key.startswith("HOROVOD")]


def test_other_roles_get_nothing() -> None:
    workload = job(*ROLES, role("board", 1, policy=None), controller="gloo")
    assert injection(workload, "board") == Injection()


PROBLEMS = {
    "no launcher: rejected": (job(ROLES[1]), "spec.roles: framework horovod requires a role 'launcher'"),
    "no worker without launcherAsHost: rejected": (
        job(ROLES[0], controller="mpi"),
        "spec.options.launcherAsHost: invalid value false: must be true without role 'worker'",
    ),
}


@pytest.mark.parametrize(("workload", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(workload: Workload, want: str) -> None:
    assert [str(problem) for problem in HOROVOD.check(workload)] == [want]
