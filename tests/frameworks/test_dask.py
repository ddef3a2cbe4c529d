import pytest
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.dask import RETIRE_FILE, Dask
from argosy.workload.model import Dependency, Elastic, Phase, ResizeMode, RestartScope, Role, Workload
from tests.support.workloads import role, workload

DASK = Dask()
SUFFIX = "ns.svc.cluster.local"
SCHEDULER, LEAD, WORKER, LAUNCHER = (
    role("scheduler", 1, policy=None),
    role("leadworker", 1, policy=None),
    role("worker", 2, policy=None),
    role("launcher", 1, policy=None),
)
RETIRE = ("--preload-nanny", RETIRE_FILE)
ADDRESS = f"tcp://job-scheduler-0.job-scheduler.{SUFFIX}:8786"


def job(*roles: Role, **options: object) -> Workload:
    usual = (SCHEDULER, WORKER, LAUNCHER)
    return DASK.defaults(replace(workload(*(roles or usual)), framework="dask", options=options))


def injection(workload: Workload, name: str, index: int = 0) -> Injection:
    return DASK.inject(workload, workload.roles[name], index)


@pytest.mark.parametrize("name", ["scheduler", "worker", "launcher"])
def test_every_role_gets_the_address_of_the_scheduler(name: str) -> None:
    assert injection(job(), name).env["DASK_SCHEDULER_ADDRESS"] == ADDRESS


COMMANDS = {
    "scheduler: default command": ("scheduler", {}, ("dask", "scheduler", "--port", "8786")),
    "scheduler with another port: port in its command": (
        "scheduler",
        {"port": 99},
        ("dask", "scheduler", "--port", "99"),
    ),
    "worker: default command": ("worker", {}, ("dask", "worker", *RETIRE)),
    "worker with threadsPerWorker: threads in its command": (
        "worker",
        {"threadsPerWorker": 3},
        ("dask", "worker", "--nthreads", "3", *RETIRE),
    ),
    "launcher: no default command": ("launcher", {}, ()),
}


@pytest.mark.parametrize(("name", "options", "want"), COMMANDS.values(), ids=COMMANDS.keys())
def test_default_commands(name: str, options: dict[str, object], want: tuple[str, ...]) -> None:
    assert injection(job(**options), name).default_command == want


def test_slots_become_worker_processes() -> None:
    workload = job(SCHEDULER, replace(WORKER, slots=4), LAUNCHER)
    assert injection(workload, "worker").default_command == ("dask", "worker", "--nworkers", "4", *RETIRE)


def test_the_scheduler_exposes_its_port() -> None:
    assert injection(job(), "scheduler").ports == (Port("scheduler", 8786),)


def ring(workload: Workload, name: str, index: int) -> tuple[str, str, str, str]:
    env = injection(workload, name, index).env
    return env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"], env["MASTER_PORT"]


def test_all_but_the_scheduler_have_ranks_the_leader_first() -> None:
    workload = job(SCHEDULER, LEAD, WORKER, LAUNCHER)
    master = f"job-leadworker-0.job-leadworker.{SUFFIX}"
    assert [ring(workload, *place) for place in (("leadworker", 0), ("worker", 1), ("launcher", 0))] == [
        ("0", "4", "0.0.0.0", "23456"),
        ("2", "4", master, "23456"),
        ("3", "4", master, "23456"),
    ]
    assert "RANK" not in injection(workload, "scheduler").env


def test_without_a_leader_the_first_worker_is_rank_0() -> None:
    workload = job(masterPort=7)
    assert ring(workload, "worker", 0) == ("0", "3", "0.0.0.0", "7")
    assert ring(workload, "launcher", 0) == ("2", "3", f"job-worker-0.job-worker.{SUFFIX}", "7")


def test_elastic_workers_have_no_ranks() -> None:
    workload = job(SCHEDULER, replace(WORKER, elastic=Elastic(1, 4)), LAUNCHER)
    assert injection(workload, "launcher").env == {"DASK_SCHEDULER_ADDRESS": ADDRESS}
    assert "RANK" not in injection(workload, "worker").env


@pytest.mark.parametrize("name", ["worker", "leadworker"])
def test_nannies_of_workers_load_the_module_that_retires_them(name: str) -> None:
    injected = injection(job(SCHEDULER, LEAD, WORKER, LAUNCHER), name)
    assert injected.default_command[-2:] == RETIRE
    compile(injected.files[RETIRE_FILE], RETIRE_FILE, "exec")


@pytest.mark.parametrize("name", ["scheduler", "launcher"])
def test_other_roles_have_no_nanny(name: str) -> None:
    assert not injection(job(), name).files


def test_roles_start_in_order_scheduler_workers_launcher() -> None:
    workload = job(LAUNCHER, WORKER, LEAD, SCHEDULER)
    assert {name: role.depends_on for name, role in workload.roles.items()} == {
        "scheduler": (),
        "leadworker": (Dependency("scheduler", Phase.RUNNING),),
        "worker": (Dependency("leadworker", Phase.RUNNING),),
        "launcher": (Dependency("worker", Phase.RUNNING),),
    }


def test_a_users_own_dependency_is_kept() -> None:
    own = (Dependency("scheduler", Phase.STARTING),)
    workload = job(SCHEDULER, WORKER, replace(LAUNCHER, depends_on=own))
    assert workload.roles["launcher"].depends_on == own


def test_rules() -> None:
    rules = DASK.rules(job())
    assert rules.succeeded_when == (("launcher",),)
    assert rules.failed_when == (("scheduler",), ("worker",), ("launcher",))
    assert (rules.restart_scope, rules.resize) == (RestartScope.POD, ResizeMode.LIVE)


PROBLEMS = {
    "no scheduler: rejected": ((WORKER, LAUNCHER), "spec.roles: framework dask requires a role 'scheduler'"),
    "no launcher: rejected": ((SCHEDULER, WORKER), "spec.roles: framework dask requires a role 'launcher'"),
    "neither worker nor leadworker: rejected": (
        (SCHEDULER, LAUNCHER),
        "spec.roles: framework dask requires a role 'worker'",
    ),
    "two schedulers: rejected": (
        (role("scheduler", 2), WORKER, LAUNCHER),
        "spec.roles.scheduler.replicas: invalid value 2: must be 1",
    ),
    "two leadworkers: rejected": (
        (SCHEDULER, role("leadworker", 2), LAUNCHER),
        "spec.roles.leadworker.replicas: invalid value 2: must be 1",
    ),
}


@pytest.mark.parametrize(("roles", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(roles: tuple[Role, ...], want: str) -> None:
    assert [str(problem) for problem in DASK.check(job(*roles))] == [want]


def test_a_leadworker_without_workers_is_accepted() -> None:
    assert list(DASK.check(job(SCHEDULER, LEAD, LAUNCHER))) == []
