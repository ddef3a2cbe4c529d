import pytest
from msgspec.structs import replace

from argosy.frameworks.base import REMOTE_AGENT, Injection
from argosy.frameworks.mpi import HOST_FILE, IDLE_COMMAND, SSHD, Implementation, Mpi
from argosy.workload.model import Dependency, Phase, RestartScope, Role, Workload
from tests.support.workloads import role, workload

MPI = Mpi()
ROLES = (role("launcher", 1, policy=None), role("worker", 2, policy=None))


def job(*roles: Role, **options: object) -> Workload:
    return MPI.defaults(replace(workload(*(roles or ROLES)), framework="mpi", options=options))


def launcher(made: Workload) -> Injection:
    return MPI.inject(made, made.roles["launcher"], 0)


HOST_FILES = {
    "Open MPI": ({}, "job-worker-0 slots=1\njob-worker-1 slots=1\n"),
    "MPICH": ({"implementation": "mpich"}, "job-worker-0:1\njob-worker-1:1\n"),
    "Intel": ({"implementation": "intel", "slotsPerWorker": 4}, "job-worker-0:4\njob-worker-1:4\n"),
    "the launcher first": (
        {"launcherAsHost": True},
        "job-launcher-0 slots=1\njob-worker-0 slots=1\njob-worker-1 slots=1\n",
    ),
}


@pytest.mark.parametrize(("options", "want"), HOST_FILES.values(), ids=HOST_FILES.keys())
def test_host_file(options: dict[str, object], want: str) -> None:
    assert launcher(job(**options)).files == {HOST_FILE: want}


ENVIRONMENTS = {
    "Open MPI finds agent and hosts, and its daemons an agent too, for they end where there is none": (
        {"implementation": "ompi"},
        {
            "OMPI_MCA_plm_rsh_agent": f"{REMOTE_AGENT} : /bin/sh",
            "PRTE_MCA_plm_ssh_agent": f"{REMOTE_AGENT} : /bin/sh",
            "OMPI_MCA_orte_default_hostfile": HOST_FILE,
            "PRTE_MCA_prte_default_hostfile": HOST_FILE,
        },
    ),
    "Open MPI starts all daemons from the launcher": (
        {"implementation": "ompi"},
        {"OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1"},
    ),
    "MPICH finds agent and hosts, and is called back at the pod's address": (
        {"implementation": "mpich"},
        {"HYDRA_LAUNCHER_EXEC": REMOTE_AGENT, "HYDRA_HOST_FILE": HOST_FILE, "HYDRA_IFACE": "eth0"},
    ),
    "Intel MPI finds agent and hosts, and is called back at the pod's address": (
        {"implementation": "intel"},
        {
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": REMOTE_AGENT,
            "I_MPI_HYDRA_HOST_FILE": HOST_FILE,
            "I_MPI_HYDRA_IFACE": "eth0",
        },
    ),
    "Intel MPI puts one rank into a pod, not one for each core": (
        {"implementation": "intel"},
        {"I_MPI_PERHOST": "1"},
    ),
    "Intel MPI puts as many ranks into a pod as are wanted": (
        {"implementation": "intel", "slotsPerWorker": 4},
        {"I_MPI_PERHOST": "4"},
    ),
    "Intel MPI starts all proxies from the launcher": (
        {"implementation": "intel", "launcherAsHost": True},
        {"I_MPI_HYDRA_BRANCH_COUNT": "3"},
    ),
}


@pytest.mark.parametrize(("options", "want"), ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_environment(options: dict[str, object], want: dict[str, str]) -> None:
    given = launcher(job(**options)).env
    assert {key: given[key] for key in want} == want


LENGTHS = {"a name of usual length": (38, False), "a name that crashes the mpirun of Open MPI 4": (39, True)}


@pytest.mark.parametrize(("length", "want"), LENGTHS.values(), ids=LENGTHS.keys())
def test_long_host_names_are_listed_in_full(length: int, want: bool) -> None:
    made = replace(job(), name="n" * length)
    assert ("OMPI_MCA_regx" in launcher(made).env) is want


@pytest.mark.parametrize("name", ["mpich", "intel"])
def test_no_interface_is_named_in_the_network_of_the_node(name: str) -> None:
    spec = {"hostNetwork": True, "containers": [{"name": "main"}]}
    given = launcher(job(replace(ROLES[0], template={"spec": spec}), ROLES[1], implementation=name)).env
    assert not [key for key in given if key.endswith("IFACE")]


def test_the_launcher_waits_for_its_workers_and_starts_processes_in_them() -> None:
    made = job()
    assert made.roles["launcher"].depends_on == (Dependency("worker", Phase.RUNNING),)
    assert launcher(made).remote_exec
    rules = MPI.rules(made)
    assert rules.exec_from == ("launcher",)
    assert rules.exec_into == ("launcher", "worker")


def test_a_users_own_dependency_is_kept() -> None:
    own = (Dependency("worker", Phase.STARTING),)
    made = job(replace(ROLES[0], depends_on=own), ROLES[1])
    assert made.roles["launcher"].depends_on == own


def test_workers_sleep_unless_they_have_a_command() -> None:
    made = job()
    assert MPI.inject(made, made.roles["worker"], 1).default_command == IDLE_COMMAND


def test_with_keys_ranks_are_started_by_ssh_and_nobody_has_rights_over_pods() -> None:
    made = job(sshKeys=True)
    assert MPI.rules(made).ssh_roles == ("launcher", "worker")
    assert MPI.rules(made).exec_from == MPI.rules(made).exec_into == ()
    assert MPI.inject(made, made.roles["worker"], 0).default_command == SSHD
    assert not launcher(made).remote_exec
    assert launcher(made).files == launcher(job()).files
    assert MPI.rules(job()).ssh_roles == ()


OWN_SSHD: dict[str, tuple[dict[str, object], bool]] = {
    "a worker without a command runs our sshd: hosts are verified": ({}, True),
    "a worker with a command: hosts are not verified": ({"command": ["sshd"]}, False),
    "a worker with arguments for its image: hosts are not verified": ({"args": ["-D"]}, False),
    "a worker with keys of its own: hosts are not verified": (
        {"volumeMounts": [{"name": "keys", "mountPath": "/root/.ssh"}]},
        False,
    ),
}


@pytest.mark.parametrize(("container", "want"), OWN_SSHD.values(), ids=OWN_SSHD.keys())
def test_ssh_verifies_hosts_if_every_sshd_is_ours(container: dict[str, object], want: bool) -> None:
    template = {"spec": {"containers": [{"name": "main", **container}]}}
    made = job(ROLES[0], replace(ROLES[1], template=template), sshKeys=True)
    assert MPI.rules(made).ssh_verifies_hosts is want


@pytest.mark.parametrize("name", [*Implementation])
def test_with_keys_no_agent_is_named(name: str) -> None:
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


PROBLEMS = {
    "no launcher": (job(ROLES[1]), "spec.roles: framework mpi requires a role 'launcher'"),
    "two launchers": (
        job(role("launcher", 2), ROLES[1]),
        "spec.roles.launcher.replicas: invalid value 2: must be 1",
    ),
    "nobody to take ranks": (job(ROLES[0]), "spec.options.launcherAsHost: invalid value false: must be true"),
    "Intel MPI with more ranks in one role than in the other": (
        job(ROLES[0], replace(ROLES[1], slots=2), implementation="intel", launcherAsHost=True),
        "spec.options.slotsPerWorker: required: Intel MPI starts the same number of ranks in every pod",
    ),
}


@pytest.mark.parametrize(("made", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(made: Workload, want: str) -> None:
    found = [str(problem) for problem in MPI.check(made)]
    assert len(found) == 1
    assert found[0].startswith(want)


ACCEPTED = {
    "Intel MPI, told how many ranks": job(
        ROLES[0],
        replace(ROLES[1], slots=2),
        implementation="intel",
        launcherAsHost=True,
        slotsPerWorker=2,
    ),
    "Intel MPI, the launcher takes no ranks": job(
        ROLES[0], replace(ROLES[1], slots=2), implementation="intel"
    ),
    "others have the numbers in the host file": job(
        ROLES[0], replace(ROLES[1], slots=2), implementation="mpich", launcherAsHost=True
    ),
}


@pytest.mark.parametrize("made", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_no_problem(made: Workload) -> None:
    assert list(MPI.check(made)) == []


def test_a_launcher_that_takes_all_ranks_needs_no_worker() -> None:
    made = job(ROLES[0], launcherAsHost=True)
    assert list(MPI.check(made)) == []
    assert launcher(made).files == {HOST_FILE: "job-launcher-0 slots=1\n"}
