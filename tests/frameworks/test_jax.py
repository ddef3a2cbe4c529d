from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.jax import Jax
from argosy.workload.model import ResizeMode, RestartScope, Role, Workload
from tests.support.workloads import role, workload

JAX = Jax()


def job(*roles: Role, **options: object) -> Workload:
    return JAX.defaults(replace(workload(*roles), framework="jax", options=options))


def injection(workload: Workload, name: str, index: int) -> Injection:
    return JAX.inject(workload, workload.roles[name], index)


def test_every_process_gets_its_id_and_the_coordinators_address() -> None:
    assert injection(job(role("worker", 3), port=5), "worker", 2).env == {
        "JAX_COORDINATOR_ADDRESS": "job-worker-0.job-worker.ns.svc.cluster.local:5",
        "JAX_NUM_PROCESSES": "3",
        "JAX_PROCESS_ID": "2",
        "PYTHONUNBUFFERED": "1",
    }


def test_the_first_worker_exposes_the_coordinators_port() -> None:
    workload = job(role("worker", 2))
    assert injection(workload, "worker", 0).ports == (Port("coordinator", 1234),)
    assert injection(workload, "worker", 1).ports == ()


def test_other_roles_get_nothing() -> None:
    workload = job(role("worker", 2), role("board", 1))
    assert injection(workload, "board", 0) == Injection()
    assert JAX.rules(workload).succeeded_when == (("worker",),)


def test_a_lost_pod_restarts_the_whole_job() -> None:
    rules = JAX.rules(job(role("worker", 2)))
    assert (rules.restart_scope, rules.resize) == (RestartScope.JOB, ResizeMode.RESTART)


def test_a_job_without_workers_is_rejected() -> None:
    problems = [str(problem) for problem in JAX.check(job(role("chief")))]
    assert problems == ["spec.roles: framework jax requires a role 'worker'"]
