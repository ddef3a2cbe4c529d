import pytest
from msgspec.structs import replace

from argosy.frameworks.bagua import Bagua
from argosy.frameworks.base import Injection, Port
from argosy.workload.model import Dependency, Elastic, Phase, ResizeMode, RestartScope, Role, Workload
from tests.support.workloads import role, workload

BAGUA = Bagua()
SUFFIX = "ns.svc.cluster.local"
MASTER, WORKER = role("master", 1, policy=None), role("worker", 2, policy=None)
ETCD = role("etcd", 1, policy=None)
MOVING = replace(WORKER, elastic=Elastic(2, 2))
PORTS = [12355, 12356, 12357, 12358, 12359, 12360]


def job(*roles: Role, **options: object) -> Workload:
    return BAGUA.defaults(replace(workload(*roles), framework="bagua", options=options))


def injection(workload: Workload, name: str, index: int = 0) -> Injection:
    return BAGUA.inject(workload, workload.roles[name], index)


def test_a_static_group_gets_the_masters_address() -> None:
    workload = job(MASTER, WORKER, availablePorts=PORTS[:4])
    master = f"job-master-0.job-master.{SUFFIX}"
    first, second = (f"job-worker-{index}.job-worker.{SUFFIX}" for index in (0, 1))
    assert injection(workload, "worker", 1).env == {
        "BAGUA_SSH_PORT": "12355",
        "MASTER_PORT": "12356",
        "BAGUA_AVAILABLE_PORTS": "12357,12358",
        "MASTER_ADDR": master,
        "WORLD_SIZE": "3",
        "RANK": "2",
        "BAGUA_NODE_DOMAIN_NAMES": f"{master},{first},{second}",
        "SERVICE_DOMAIN_NAME": f"job-worker.{SUFFIX} job-master.{SUFFIX}",
    }
    assert injection(workload, "master").env["RANK"] == "0"
    assert injection(workload, "master").ports == tuple(Port(f"port-{port}", port) for port in PORTS[:4])


def test_a_master_without_workers_is_a_world_of_one() -> None:
    workload = job(MASTER)
    assert injection(workload, "master").env["SERVICE_DOMAIN_NAME"] == f"job-master.{SUFFIX}"
    assert BAGUA.rules(workload).succeeded_when == (("master",),)


def test_elastic_workers_share_the_ports() -> None:
    workload = job(MOVING, ETCD, availablePorts=PORTS)
    injections = [injection(workload, "worker", index) for index in (0, 1)]
    assert [injected.env["BAGUA_SSH_PORT"] for injected in injections] == ["12357", "12359"]
    assert [injected.env["BAGUA_AVAILABLE_PORTS"] for injected in injections] == ["12358", "12360"]
    assert [[port.number for port in injected.ports] for injected in injections] == [
        [12357, 12358],
        [12359, 12360],
    ]


def test_two_elastic_workers_get_one_of_five_ports_each() -> None:
    workload = job(MOVING, ETCD, availablePorts=PORTS[:5])
    assert injection(workload, "worker", 1).env["BAGUA_SSH_PORT"] == "12358"
    assert injection(workload, "worker", 1).env["BAGUA_AVAILABLE_PORTS"] == ""


def test_elastic_workers_get_etcds_address_and_the_name_of_the_job() -> None:
    env = injection(job(replace(WORKER, elastic=Elastic(1, 4)), ETCD, availablePorts=PORTS), "worker").env
    assert {name: env[name] for name in ("ETCD_HOST", "ETCD_CLIENT_PORT", "ETCD_SERVER_PORT", "JOB_ID")} == {
        "ETCD_HOST": f"job-etcd-0.job-etcd.{SUFFIX}",
        "ETCD_CLIENT_PORT": "12355",
        "ETCD_SERVER_PORT": "12356",
        "JOB_ID": "job",
    }
    assert (env["MIN_SIZE"], env["MAX_SIZE"]) == ("1", "4")
    assert env["SERVICE_DOMAIN_NAME"] == f"job-worker.{SUFFIX}"


def test_etcd_gets_its_ports_and_a_default_command() -> None:
    injected = injection(job(MOVING, ETCD, availablePorts=PORTS), "etcd")
    assert injected.env == {
        "ETCD_CLIENT_PORT": "12355",
        "ETCD_SERVER_PORT": "12356",
        "ETCD_ENABLE_V2": "true",
    }
    assert injected.ports == (Port("port-12355", 12355), Port("port-12356", 12356))
    assert injected.default_command[:2] == ("etcd", "--listen-client-urls=http://0.0.0.0:12355")


def test_without_available_ports_they_count_from_12345() -> None:
    static, elastic = job(MASTER, WORKER), job(MOVING, ETCD)
    assert injection(static, "worker").env["BAGUA_AVAILABLE_PORTS"] == "12347,12348"
    assert injection(elastic, "worker", 1).env["BAGUA_SSH_PORT"] == "12349"
    assert injection(elastic, "worker", 1).env["BAGUA_AVAILABLE_PORTS"] == "12350"


def test_other_roles_get_nothing() -> None:
    board = role("board", 1, policy=None)
    assert injection(job(MASTER, WORKER, board), "board") == Injection()
    assert injection(job(MOVING, ETCD, board), "board") == Injection()


def test_workers_depend_on_the_master_or_on_etcd() -> None:
    assert job(MASTER, WORKER).roles["worker"].depends_on == (Dependency("master", Phase.RUNNING),)
    assert job(MOVING, ETCD).roles["worker"].depends_on == (Dependency("etcd", Phase.RUNNING),)


def test_rules() -> None:
    static, elastic = BAGUA.rules(job(MASTER, WORKER)), BAGUA.rules(job(MOVING, ETCD))
    assert static.succeeded_when == (("master", "worker"),)
    assert static.failed_when == (("master",), ("worker",))
    assert (static.restart_scope, static.resize) == (RestartScope.JOB, ResizeMode.RESTART)
    assert (elastic.succeeded_when, elastic.failed_when) == ((("worker",),), (("worker",), ("etcd",)))
    assert (elastic.restart_scope, elastic.resize) == (RestartScope.POD, ResizeMode.LIVE)


PROBLEMS = {
    "static without master: rejected": (job(WORKER), "spec.roles: framework bagua requires a role 'master'"),
    "elastic without etcd: rejected": (job(MOVING), "spec.roles: framework bagua requires a role 'etcd'"),
    "two masters: rejected": (
        job(role("master", 2)),
        "spec.roles.master.replicas: invalid value 2: must be 1",
    ),
    "master with elastic workers: rejected": (
        job(MOVING, ETCD, MASTER),
        "spec.roles.master: not supported with elastic workers, which use role 'etcd'",
    ),
    "one port: too few": (
        job(MASTER, WORKER, availablePorts=[1]),
        "spec.options.availablePorts: too few ports: must be empty or at least 2",
    ),
    "three ports for two elastic workers: too few": (
        job(MOVING, ETCD, availablePorts=[1, 2, 3]),
        "spec.options.availablePorts: too few ports: must be empty or at least 4",
    ),
    "port listed twice: rejected": (
        job(MASTER, WORKER, availablePorts=[1, 2, 1]),
        "spec.options.availablePorts: duplicate port: each must be listed once",
    ),
}


@pytest.mark.parametrize(("workload", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(workload: Workload, want: str) -> None:
    assert [str(problem) for problem in BAGUA.check(workload)] == [want]
