from argosy.frameworks.base import Injection
from argosy.frameworks.standalone import Standalone
from argosy.workload.model import Rules
from tests.support.workloads import role, workload

STANDALONE = Standalone()


def test_pods_are_left_alone() -> None:
    job = workload(role("worker", 2))
    assert STANDALONE.inject(job, job.roles["worker"], 1) == Injection()


def test_the_workers_decide_and_nobody_is_found_by_name() -> None:
    made = STANDALONE.rules(workload(role("worker"), role("board", 1)))
    assert made == Rules(succeeded_when=(("worker",),), failed_when=(("worker",),))


def test_without_workers_there_is_nothing_to_run() -> None:
    found = [str(problem) for problem in STANDALONE.check(workload(role("chief")))]
    assert found == ["spec.roles: framework custom requires a role 'worker'"]
