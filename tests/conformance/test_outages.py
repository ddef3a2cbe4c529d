"""Runs go on when the operator or the API server is killed under them."""

import pytest

from tests.support.builders import pod_template, run
from tests.support.targets import IMAGE, NotOurs
from tests.support.user import Tenant
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exclusive

COUNTS = "for i in $(seq 60); do echo $i; sleep 0.1; done"
COUNTED = [str(number) for number in range(1, 61)]


def begin(tenant: Tenant, name: str) -> None:
    template = pod_template(IMAGE, command=["sh", "-c", COUNTS])
    tenant.apply(run(name).role("worker", 2, restart="OnFailure", template=template).limits(restarts=0))


def uids(tenant: Tenant, name: str) -> str:
    return tenant.kubectl(
        "get", "pods", "-l", f"argosy.dev/job={name}", "-o", "jsonpath={.items[*].metadata.uid}"
    ).stdout


def kill_apiserver(tenant: Tenant) -> None:
    try:
        tenant.ground.kill_apiserver()
    except NotOurs as error:
        pytest.skip(str(error))


def test_a_run_whose_operator_is_killed_goes_on_and_ends(tenant: Tenant) -> None:
    begin(tenant, "orphan")
    tenant.until_phase("orphan", "Running")
    before, pods = tenant.ground.operators(), uids(tenant, "orphan")
    tenant.ground.kill_operator()
    status = tenant.until_phase("orphan", "Succeeded", "Failed")
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert uids(tenant, "orphan") == pods, "nothing was started anew"
    assert tenant.said("orphan-worker-0").split() == COUNTED
    wait_for(lambda: (now := tenant.ground.operators()) and not now & before, "it is another", 60)


@pytest.mark.long_on_cluster
def test_a_run_that_came_while_there_was_no_operator_is_run(tenant: Tenant) -> None:
    tenant.ground.kill_operator()
    begin(tenant, "early")
    assert tenant.until_phase("early", "Succeeded", "Failed")["phase"] == "Succeeded"


def test_a_run_goes_on_when_the_api_server_is_killed(tenant: Tenant) -> None:
    begin(tenant, "cut")
    tenant.until_phase("cut", "Running")
    pods = uids(tenant, "cut")
    kill_apiserver(tenant)
    status = tenant.until_phase("cut", "Succeeded", "Failed")
    assert (status["phase"], status["attempt"], status.get("restarts", 0)) == ("Succeeded", 1, 0)
    assert uids(tenant, "cut") == pods
    assert tenant.said("cut-worker-1").split() == COUNTED


@pytest.mark.long_on_cluster
def test_pods_of_an_aresjob_that_wait_are_released_by_the_next_operator(tenant: Tenant) -> None:
    """Their initializers ask again until somebody answers."""
    main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", "sleep 8"]}
    template = {"spec": {"containers": [main]}}
    worker = {
        "replicas": 8,
        "dependence": {"roleNames": ["gate"], "rolePhase": "Succeeded"},
        "template": template,
    }
    spec = {"frameworkType": "custom", "roleSpecs": {"gate": {"template": template}, "worker": worker}}
    tenant.apply({"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "held"}, "spec": spec})
    held = ("get", "pods", "-l", "ares.io/job-name=held,ares.io/replica-type=worker", "--no-headers")

    def told() -> str:
        return tenant.kubectl(*held).stdout

    wait_for(lambda: told().count("Init:0/1") == 8, told, 60)
    tenant.ground.kill_operator()
    phase = ("get", "aj", "held", "-o", "jsonpath={.status.phase}")
    wait_for(lambda: tenant.kubectl(*phase).stdout == "Succeeded", told, 120)
