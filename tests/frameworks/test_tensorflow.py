import json

import pytest
from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.tensorflow import TensorFlow
from argosy.workload.model import ResizeMode, RestartScope, Role, Workload
from tests.support.workloads import role, workload

TENSORFLOW = TensorFlow()
CHIEF, WORKER, SERVER, EVALUATOR = role("chief", 1), role("worker", 2), role("ps", 1), role("evaluator", 1)


def job(*roles: Role, **options: object) -> Workload:
    return TENSORFLOW.defaults(replace(workload(*roles), framework="tensorflow", options=options))


def injection(workload: Workload, name: str, index: int = 0) -> Injection:
    return TENSORFLOW.inject(workload, workload.roles[name], index)


def config(workload: Workload, name: str, index: int = 0) -> object:
    return json.loads(injection(workload, name, index).env["TF_CONFIG"])


def at(name: str, index: int, port: int = 2222) -> str:
    return f"job-{name}-{index}.job-{name}.ns.svc.cluster.local:{port}"


def test_workers_get_the_addresses_of_all_workers() -> None:
    assert config(job(WORKER), "worker", 1) == {
        "cluster": {"worker": [at("worker", 0), at("worker", 1)]},
        "environment": "cloud",
        "task": {"index": 1, "type": "worker"},
    }


def test_tf_config_does_not_depend_on_the_order_of_roles() -> None:
    first, second = job(CHIEF, WORKER, SERVER), job(SERVER, WORKER, CHIEF)
    assert injection(first, "ps").env == injection(second, "ps").env
    assert injection(first, "ps").env["TF_CONFIG"].startswith('{"cluster":{"chief":[')


def test_an_evaluator_gets_the_cluster_without_being_part_of_it() -> None:
    assert config(job(CHIEF, WORKER, EVALUATOR), "evaluator") == {
        "cluster": {"chief": [at("chief", 0)], "worker": [at("worker", 0), at("worker", 1)]},
        "environment": "cloud",
        "task": {"index": 0, "type": "evaluator"},
    }


def test_a_single_process_gets_no_tf_config() -> None:
    assert injection(job(role("worker", 1)), "worker").env == {}
    assert injection(job(role("worker", 1), role("board", 1)), "worker").env == {}


DYNAMIC = {
    "worker: itself and all parameter servers": (
        ("worker", 1),
        {"ps": [at("ps", 0)], "worker": {"1": at("worker", 1)}},
    ),
    "parameter server: itself only": (("ps", 0), {"ps": [at("ps", 0)], "worker": {}}),
    "chief: empty cluster": (("chief", 0), {"ps": [], "worker": {}}),
}


@pytest.mark.parametrize(("place", "want"), DYNAMIC.values(), ids=DYNAMIC.keys())
def test_dynamic_workers(place: tuple[str, int], want: object) -> None:
    workload = job(CHIEF, WORKER, SERVER, dynamicWorkers=True)
    assert config(workload, *place) == {"sparseCluster": want, "task": {"index": place[1], "type": place[0]}}


def test_dynamic_workers_without_servers() -> None:
    workload = job(WORKER, dynamicWorkers=True)
    cluster = {"ps": [], "worker": {"0": at("worker", 0)}}
    assert config(workload, "worker") == {"sparseCluster": cluster, "task": {"index": 0, "type": "worker"}}


def test_every_pod_exposes_the_configured_port() -> None:
    workload = job(WORKER, port=7)
    assert injection(workload, "worker").ports == (Port("tfjob-port", 7),)
    assert at("worker", 1, 7) in injection(workload, "worker").env["TF_CONFIG"]


def test_other_roles_get_nothing() -> None:
    workload = job(WORKER, role("board", 1))
    assert injection(workload, "board") == Injection()
    assert "board" not in injection(workload, "worker").env["TF_CONFIG"]


SUCCESS = {
    "only workers: workers decide": ((WORKER,), ("worker",)),
    "chief and workers: both decide": ((WORKER, CHIEF), ("chief", "worker")),
    "chief with parameter servers: chief decides": ((WORKER, CHIEF, SERVER), ("chief",)),
    "workers with parameter servers: workers decide": ((WORKER, SERVER), ("worker",)),
    "evaluator: does not decide": ((WORKER, EVALUATOR), ("worker",)),
}


@pytest.mark.parametrize(("roles", "want"), SUCCESS.values(), ids=SUCCESS.keys())
def test_success(roles: tuple[Role, ...], want: tuple[str, ...]) -> None:
    assert TENSORFLOW.rules(job(*roles)).succeeded_when == (want,)


SCOPES = {
    "no parameter servers: the whole job restarts": (
        (CHIEF, WORKER),
        False,
        RestartScope.JOB,
        ResizeMode.RESTART,
    ),
    "parameter servers: pods are replaced": (
        (CHIEF, WORKER, SERVER),
        False,
        RestartScope.POD,
        ResizeMode.RESTART,
    ),
    "dynamic workers: pods are replaced and resized live": (
        (WORKER, SERVER),
        True,
        RestartScope.POD,
        ResizeMode.LIVE,
    ),
}


@pytest.mark.parametrize(("roles", "dynamic", "scope", "resize"), SCOPES.values(), ids=SCOPES.keys())
def test_restart_scope_and_resize(
    roles: tuple[Role, ...], dynamic: bool, scope: RestartScope, resize: ResizeMode
) -> None:
    rules = TENSORFLOW.rules(job(*roles, dynamicWorkers=dynamic))
    assert (rules.restart_scope, rules.resize) == (scope, resize)


PROBLEMS = {
    "no role that trains: rejected": (
        (SERVER,),
        "spec.roles: framework tensorflow requires a role 'worker', 'chief' or 'master'",
    ),
    "two chiefs: rejected": (
        (role("chief", 2), WORKER),
        "spec.roles.chief.replicas: invalid value 2: must be 1",
    ),
    "chief and master: rejected": (
        (CHIEF, role("master", 1)),
        "spec.roles.master: not supported with role 'chief', which means the same",
    ),
}


@pytest.mark.parametrize(("roles", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(roles: tuple[Role, ...], want: str) -> None:
    assert [str(problem) for problem in TENSORFLOW.check(job(*roles))] == [want]
