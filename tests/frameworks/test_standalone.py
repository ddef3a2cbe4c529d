from argosy.frameworks.base import Injection
from argosy.frameworks.standalone import Standalone
from argosy.workload.model import Rules
from tests.support.workloads import role, workload

STANDALONE = Standalone()


def test_pods_get_no_variables() -> None:
    job = workload(role("worker", 2))
    assert STANDALONE.inject(job, job.roles["worker"], 1) == Injection()


def test_the_workers_decide_about_the_job_and_there_are_no_services() -> None:
    rules = STANDALONE.rules(workload(role("worker"), role("board", 1)))
    assert rules == Rules(succeeded_when=(("worker",),), failed_when=(("worker",),))


def test_a_job_without_workers_is_rejected() -> None:
    problems = [str(problem) for problem in STANDALONE.check(workload(role("chief")))]
    assert problems == ["spec.roles: framework custom requires a role 'worker'"]
