from argosy.frameworks.custom import Custom
from argosy.frameworks.registry import find_framework, installed
from tests.support.workloads import role, workload

CUSTOM = Custom()


def test_every_pod_gets_its_role_its_index_and_all_addresses() -> None:
    job = workload(role("ps-main", 1), role("worker", 2))
    assert CUSTOM.inject(job, job.roles["worker"], 1).env == {
        "ROLE": "worker",
        "INDEX": "1",
        "ROLE_PS_MAIN": "job-ps-main-0.job-ps-main.ns.svc.cluster.local",
        "ROLE_PS_MAIN_SIZE": "1",
        "ROLE_PS_MAIN_SERVICE": "job-ps-main.ns.svc.cluster.local",
        "ROLE_WORKER": "job-worker-0.job-worker.ns.svc.cluster.local,"
        "job-worker-1.job-worker.ns.svc.cluster.local",
        "ROLE_WORKER_SIZE": "2",
        "ROLE_WORKER_SERVICE": "job-worker.ns.svc.cluster.local",
    }


def test_a_role_with_too_many_pods_has_no_address_list() -> None:
    job = workload(role("worker", 501))
    env = CUSTOM.inject(job, job.roles["worker"], 0).env
    assert "ROLE_WORKER" not in env
    assert env["ROLE_WORKER_SIZE"] == "501"


def test_all_roles_must_succeed_and_none_may_fail() -> None:
    rules = CUSTOM.rules(workload(role("b"), role("a")))
    assert (rules.succeeded_when, rules.failed_when) == ((("a", "b"),), (("b",), ("a",)))
    assert rules.services == ("b", "a")


def test_built_in_frameworks_are_found_by_name() -> None:
    assert {"custom", "mpi", "pytorch"} <= set(installed())
    assert find_framework("pytroch") is None
