from msgspec.structs import replace

from argosy.frameworks.base import Injection, Port
from argosy.frameworks.xgboost import XGBoost
from argosy.workload.model import ResizeMode, RestartScope, Role, Workload
from tests.support.workloads import role, workload

XGBOOST = XGBoost()


def job(*roles: Role, **options: object) -> Workload:
    return XGBOOST.defaults(replace(workload(*roles), framework="xgboost", options=options))


def injection(workload: Workload, name: str, index: int) -> Injection:
    return XGBOOST.inject(workload, workload.roles[name], index)


def test_every_worker_gets_its_task_id_and_the_trackers_address() -> None:
    assert injection(job(role("worker", 3), port=5), "worker", 2).env == {
        "DMLC_TRACKER_URI": "job-worker-0.job-worker.ns.svc.cluster.local",
        "DMLC_TRACKER_PORT": "5",
        "DMLC_NUM_WORKER": "3",
        "DMLC_TASK_ID": "2",
        "PYTHONUNBUFFERED": "1",
    }


def test_task_ids_sorted_as_text_are_in_the_order_of_the_pods() -> None:
    workload = job(role("worker", 12))
    ids = [injection(workload, "worker", index).env["DMLC_TASK_ID"] for index in range(12)]
    assert ids == sorted(ids)
    assert [int(task_id) for task_id in ids] == list(range(12))


def test_the_first_worker_exposes_the_trackers_port() -> None:
    workload = job(role("worker", 2))
    assert injection(workload, "worker", 0).ports == (Port("tracker", 9091),)
    assert injection(workload, "worker", 1).ports == ()


def test_other_roles_get_nothing() -> None:
    workload = job(role("worker", 2), role("board", 1))
    assert injection(workload, "board", 0) == Injection()
    assert XGBOOST.rules(workload).failed_when == (("worker",),)


def test_a_lost_pod_restarts_the_whole_job() -> None:
    rules = XGBOOST.rules(job(role("worker", 2)))
    assert (rules.restart_scope, rules.resize) == (RestartScope.JOB, ResizeMode.RESTART)


def test_a_job_without_workers_is_rejected() -> None:
    problems = [str(problem) for problem in XGBOOST.check(job(role("chief")))]
    assert problems == ["spec.roles: framework xgboost requires a role 'worker'"]
