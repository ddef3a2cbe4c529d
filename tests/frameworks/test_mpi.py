import pytest
from msgspec.structs import replace

from argosy.frameworks.base import REMOTE_AGENT, Injection
from argosy.frameworks.mpi import HOST_FILE, IDLE_COMMAND, SSHD, Implementation, Mpi
from argosy.workload.model import Dependency, Elastic, Phase, ResizeMode, RestartScope, Role, Workload
from tests.support.workloads import role, workload

MPI = Mpi()
ROLES = (role("launcher", 1, policy=None), role("worker", 2, policy=None))


def job(*roles: Role, **options: object) -> Workload:
    return MPI.defaults(replace(workload(*(roles or ROLES)), framework="mpi", options=options))


def launcher(workload: Workload) -> Injection:
    return MPI.inject(workload, workload.roles["launcher"], 0)


HOST_FILES = {
    "Open MPI: slots after a space": ({}, "job-worker-0 slots=1\njob-worker-1 slots=1\n"),
    "MPICH: slots after a colon": ({"implementation": "mpich"}, "job-worker-0:1\njob-worker-1:1\n"),
    "Intel MPI: slots after a colon": (
        {"implementation": "intel", "slotsPerWorker": 4},
        "job-worker-0:4\njob-worker-1:4\n",
    ),
    "launcherAsHost: the launcher is first": (
        {"launcherAsHost": True},
        "job-launcher-0 slots=1\njob-worker-0 slots=1\njob-worker-1 slots=1\n",
    ),
}


@pytest.mark.parametrize(("options", "want"), HOST_FILES.values(), ids=HOST_FILES.keys())
def test_host_file(options: dict[str, object], want: str) -> None:
    assert launcher(job(**options)).files == {HOST_FILE: want}


ENVIRONMENTS = {
    "Open MPI: variables with agent and host file": (
        {"implementation": "ompi"},
        {
            "OMPI_MCA_plm_rsh_agent": f"{REMOTE_AGENT} : /bin/sh",
            "PRTE_MCA_plm_ssh_agent": f"{REMOTE_AGENT} : /bin/sh",
            "OMPI_MCA_orte_default_hostfile": HOST_FILE,
            "PRTE_MCA_prte_default_hostfile": HOST_FILE,
        },
    ),
    "Open MPI: no tree spawn": (
        {"implementation": "ompi"},
        {"OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1"},
    ),
    "MPICH: variables with agent, host file and interface": (
        {"implementation": "mpich"},
        {"HYDRA_LAUNCHER_EXEC": REMOTE_AGENT, "HYDRA_HOST_FILE": HOST_FILE, "HYDRA_IFACE": "eth0"},
    ),
    "Intel MPI: variables with agent, host file and interface": (
        {"implementation": "intel"},
        {
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": REMOTE_AGENT,
            "I_MPI_HYDRA_HOST_FILE": HOST_FILE,
            "I_MPI_HYDRA_IFACE": "eth0",
        },
    ),
    "Intel MPI without slots: one rank in each pod": (
        {"implementation": "intel"},
        {"I_MPI_PERHOST": "1"},
    ),
    "Intel MPI with slotsPerWorker: as many ranks in each pod": (
        {"implementation": "intel", "slotsPerWorker": 4},
        {"I_MPI_PERHOST": "4"},
    ),
    "Intel MPI: branch count is the number of hosts": (
        {"implementation": "intel", "launcherAsHost": True},
        {"I_MPI_HYDRA_BRANCH_COUNT": "3"},
    ),
}


@pytest.mark.parametrize(("options", "want"), ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_environment(options: dict[str, object], want: dict[str, str]) -> None:
    env = launcher(job(**options)).env
    assert {key: env[key] for key in want} == want


LENGTHS = {"a name of usual length": (38, False), "a name that crashes the mpirun of Open MPI 4": (39, True)}


@pytest.mark.parametrize(("length", "want"), LENGTHS.values(), ids=LENGTHS.keys())
def test_open_mpi_does_not_abbreviate_long_host_names(length: int, want: bool) -> None:
    workload = replace(job(), name="n" * length)
    assert ("OMPI_MCA_regx" in launcher(workload).env) is want


@pytest.mark.parametrize("name", ["mpich", "intel"])
def test_with_host_network_no_interface_is_set(name: str) -> None:
    spec = {"hostNetwork": True, "containers": [{"name": "main"}]}
    env = launcher(job(replace(ROLES[0], template={"spec": spec}), ROLES[1], implementation=name)).env
    assert not [key for key in env if key.endswith("IFACE")]


def test_the_launcher_depends_on_workers_and_may_exec_into_them() -> None:
    workload = job()
    assert workload.roles["launcher"].depends_on == (Dependency("worker", Phase.RUNNING),)
    assert launcher(workload).remote_exec
    rules = MPI.rules(workload)
    assert rules.exec_from == ("launcher",)
    assert rules.exec_into == ("launcher", "worker")


def test_a_users_own_dependency_is_kept() -> None:
    own = (Dependency("worker", Phase.STARTING),)
    workload = job(replace(ROLES[0], depends_on=own), ROLES[1])
    assert workload.roles["launcher"].depends_on == own


def test_workers_without_a_command_sleep() -> None:
    workload = job()
    assert MPI.inject(workload, workload.roles["worker"], 1).default_command == IDLE_COMMAND


def test_with_ssh_keys_no_pod_may_exec() -> None:
    workload = job(sshKeys=True)
    assert MPI.rules(workload).ssh_roles == ("launcher", "worker")
    assert MPI.rules(workload).exec_from == MPI.rules(workload).exec_into == ()
    assert MPI.inject(workload, workload.roles["worker"], 0).default_command == SSHD
    assert not launcher(workload).remote_exec
    assert launcher(workload).files == launcher(job()).files
    assert MPI.rules(job()).ssh_roles == ()


OWN_SSHD: dict[str, tuple[dict[str, object], bool]] = {
    "worker without a command: hosts are verified": ({}, True),
    "worker with a command: hosts are not verified": ({"command": ["sshd"]}, False),
    "worker with args: hosts are not verified": ({"args": ["-D"]}, False),
    "worker with its own keys: hosts are not verified": (
        {"volumeMounts": [{"name": "keys", "mountPath": "/root/.ssh"}]},
        False,
    ),
}


@pytest.mark.parametrize(("container", "want"), OWN_SSHD.values(), ids=OWN_SSHD.keys())
def test_ssh_verifies_hosts_if_all_workers_run_the_default_sshd(
    container: dict[str, object], want: bool
) -> None:
    template = {"spec": {"containers": [{"name": "main", **container}]}}
    workload = job(ROLES[0], replace(ROLES[1], template=template), sshKeys=True)
    assert MPI.rules(workload).ssh_verifies_hosts is want


@pytest.mark.parametrize("name", [*Implementation])
def test_with_ssh_keys_no_agent_is_set(name: str) -> None:
    usual, by_ssh = (launcher(job(implementation=name, sshKeys=keys)).env for keys in (False, True))
    assert any(REMOTE_AGENT in value for value in usual.values())
    assert not any(REMOTE_AGENT in value for value in by_ssh.values())
    assert by_ssh.items() < usual.items()
    assert HOST_FILE in by_ssh.values()


def test_rules() -> None:
    rules = MPI.rules(job())
    assert rules.succeeded_when == (("launcher",),)
    assert rules.failed_when == (("launcher",), ("worker",))
    assert rules.restart_scope is RestartScope.JOB


def test_new_size_of_elastic_workers_restarts_the_job() -> None:
    elastic = job(ROLES[0], replace(ROLES[1], elastic=Elastic(1, 4)))
    assert MPI.rules(elastic).resize is ResizeMode.RESTART


PROBLEMS = {
    "no launcher: rejected": (job(ROLES[1]), "spec.roles: framework mpi requires a role 'launcher'"),
    "two launchers: rejected": (
        job(role("launcher", 2), ROLES[1]),
        "spec.roles.launcher.replicas: invalid value 2: must be 1",
    ),
    "no worker without launcherAsHost: rejected": (
        job(ROLES[0]),
        "spec.options.launcherAsHost: invalid value false: must be true",
    ),
    "Intel MPI with different slots by role: slotsPerWorker required": (
        job(ROLES[0], replace(ROLES[1], slots=2), implementation="intel", launcherAsHost=True),
        "spec.options.slotsPerWorker: required: Intel MPI starts the same number of ranks in every pod",
    ),
}


@pytest.mark.parametrize(("workload", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(workload: Workload, want: str) -> None:
    problems = [str(problem) for problem in MPI.check(workload)]
    assert len(problems) == 1
    assert problems[0].startswith(want)


ACCEPTED = {
    "elastic worker: accepted": job(ROLES[0], replace(ROLES[1], elastic=Elastic(1, 4))),
    "Intel MPI with slotsPerWorker: accepted": job(
        ROLES[0],
        replace(ROLES[1], slots=2),
        implementation="intel",
        launcherAsHost=True,
        slotsPerWorker=2,
    ),
    "Intel MPI with ranks in workers only: accepted": job(
        ROLES[0], replace(ROLES[1], slots=2), implementation="intel"
    ),
    "MPICH with different slots by role: accepted": job(
        ROLES[0], replace(ROLES[1], slots=2), implementation="mpich", launcherAsHost=True
    ),
}


@pytest.mark.parametrize("workload", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted_jobs(workload: Workload) -> None:
    assert list(MPI.check(workload)) == []


def test_with_launcher_as_host_a_worker_is_not_required() -> None:
    workload = job(ROLES[0], launcherAsHost=True)
    assert list(MPI.check(workload)) == []
    assert launcher(workload).files == {HOST_FILE: "job-launcher-0 slots=1\n"}
