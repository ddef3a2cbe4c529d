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


def injection(made: Workload, name: str, index: int = 0) -> Injection:
    return TENSORFLOW.inject(made, made.roles[name], index)


def config(made: Workload, name: str, index: int = 0) -> object:
    return json.loads(injection(made, name, index).env["TF_CONFIG"])


def at(name: str, index: int, port: int = 2222) -> str:
    return f"job-{name}-{index}.job-{name}.ns.svc.cluster.local:{port}"


def test_workers_are_told_of_each_other() -> None:
    assert config(job(WORKER), "worker", 1) == {
        "cluster": {"worker": [at("worker", 0), at("worker", 1)]},
        "environment": "cloud",
        "task": {"index": 1, "type": "worker"},
    }


def test_the_text_is_the_same_however_the_roles_were_written() -> None:
    one, other = job(CHIEF, WORKER, SERVER), job(SERVER, WORKER, CHIEF)
    assert injection(one, "ps").env == injection(other, "ps").env
    assert injection(one, "ps").env["TF_CONFIG"].startswith('{"cluster":{"chief":[')


def test_an_evaluator_knows_the_cluster_without_being_in_it() -> None:
    assert config(job(CHIEF, WORKER, EVALUATOR), "evaluator") == {
        "cluster": {"chief": [at("chief", 0)], "worker": [at("worker", 0), at("worker", 1)]},
        "environment": "cloud",
        "task": {"index": 0, "type": "evaluator"},
    }


def test_one_alone_is_told_nothing() -> None:
    assert injection(job(role("worker", 1)), "worker").env == {}
    assert injection(job(role("worker", 1), role("board", 1)), "worker").env == {}


DYNAMIC = {
    "a worker sees itself and all servers": (
        ("worker", 1),
        {"ps": [at("ps", 0)], "worker": {"1": at("worker", 1)}},
    ),
    "a server sees itself": (("ps", 0), {"ps": [at("ps", 0)], "worker": {}}),
    "a chief sees nobody": (("chief", 0), {"ps": [], "worker": {}}),
}


@pytest.mark.parametrize(("place", "want"), DYNAMIC.values(), ids=DYNAMIC.keys())
def test_dynamic_workers(place: tuple[str, int], want: object) -> None:
    made = job(CHIEF, WORKER, SERVER, dynamicWorkers=True)
    assert config(made, *place) == {"sparseCluster": want, "task": {"index": place[1], "type": place[0]}}


def test_dynamic_workers_without_servers() -> None:
    made = job(WORKER, dynamicWorkers=True)
    told = {"ps": [], "worker": {"0": at("worker", 0)}}
    assert config(made, "worker") == {"sparseCluster": told, "task": {"index": 0, "type": "worker"}}


def test_all_listen_at_one_port() -> None:
    made = job(WORKER, port=7)
    assert injection(made, "worker").ports == (Port("tfjob-port", 7),)
    assert at("worker", 1, 7) in injection(made, "worker").env["TF_CONFIG"]


def test_other_roles_take_no_part() -> None:
    made = job(WORKER, role("board", 1))
    assert injection(made, "board") == Injection()
    assert "board" not in injection(made, "worker").env["TF_CONFIG"]


SUCCESS = {
    "workers": ((WORKER,), ("worker",)),
    "a chief and workers that train as one": ((WORKER, CHIEF), ("chief", "worker")),
    "a chief that workers serve": ((WORKER, CHIEF, SERVER), ("chief",)),
    "workers that fetch from servers": ((WORKER, SERVER), ("worker",)),
    "an evaluator only looks on": ((WORKER, EVALUATOR), ("worker",)),
}


@pytest.mark.parametrize(("roles", "want"), SUCCESS.values(), ids=SUCCESS.keys())
def test_success(roles: tuple[Role, ...], want: tuple[str, ...]) -> None:
    assert TENSORFLOW.rules(job(*roles)).succeeded_when == (want,)


SCOPES = {
    "all train as one": ((CHIEF, WORKER), False, RestartScope.JOB, ResizeMode.RESTART),
    "servers stand between": ((CHIEF, WORKER, SERVER), False, RestartScope.POD, ResizeMode.RESTART),
    "workers come and go": ((WORKER, SERVER), True, RestartScope.POD, ResizeMode.LIVE),
}


@pytest.mark.parametrize(("roles", "dynamic", "scope", "resize"), SCOPES.values(), ids=SCOPES.keys())
def test_what_starts_anew(
    roles: tuple[Role, ...], dynamic: bool, scope: RestartScope, resize: ResizeMode
) -> None:
    rules = TENSORFLOW.rules(job(*roles, dynamicWorkers=dynamic))
    assert (rules.restart_scope, rules.resize) == (scope, resize)


PROBLEMS = {
    "nobody to train": (
        (SERVER,),
        "spec.roles: framework tensorflow requires a role 'worker', 'chief' or 'master'",
    ),
    "two chiefs": (
        (role("chief", 2), WORKER),
        "spec.roles.chief.replicas: invalid value 2: must be 1",
    ),
    "a chief under both names": (
        (CHIEF, role("master", 1)),
        "spec.roles.master: not supported with role 'chief', which means the same",
    ),
}


@pytest.mark.parametrize(("roles", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems(roles: tuple[Role, ...], want: str) -> None:
    assert [str(problem) for problem in TENSORFLOW.check(job(*roles))] == [want]
