"""Runs continue when the operator or the API server is killed."""

import pytest

from tests.support.builders import pod_template, run
from tests.support.targets import IMAGE, ForeignCluster
from tests.support.user import User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exclusive

PRINT_60_NUMBERS = "for i in $(seq 60); do echo $i; sleep 0.1; done"
NUMBERS = [str(number) for number in range(1, 61)]


def start_run(user: User, name: str) -> None:
    template = pod_template(IMAGE, command=["sh", "-c", PRINT_60_NUMBERS])
    user.apply(run(name).role("worker", 2, restart="OnFailure", template=template).limits(restarts=0))


def uids(user: User, name: str) -> str:
    return user.kubectl(
        "get", "pods", "-l", f"argosy.dev/job={name}", "-o", "jsonpath={.items[*].metadata.uid}"
    ).stdout


def kill_apiserver(user: User) -> None:
    try:
        user.target.kill_apiserver()
    except ForeignCluster as error:
        pytest.skip(str(error))


def test_run_succeeds_when_the_operator_is_killed(user: User) -> None:
    start_run(user, "orphan")
    user.wait_for_phase("orphan", "Running")
    before, pods = user.target.operators(), uids(user, "orphan")
    user.target.kill_operator()
    status = user.wait_for_phase("orphan", "Succeeded", "Failed")
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert uids(user, "orphan") == pods, "pods were replaced"
    assert user.logs("orphan-worker-0").split() == NUMBERS
    wait_for(lambda: (now := user.target.operators()) and not now & before, "no new operator runs", 60)


@pytest.mark.long_on_cluster
def test_run_created_without_an_operator_starts_with_the_next_one(user: User) -> None:
    user.target.kill_operator()
    start_run(user, "early")
    assert user.wait_for_phase("early", "Succeeded", "Failed")["phase"] == "Succeeded"


def test_run_succeeds_when_the_api_server_is_killed(user: User) -> None:
    start_run(user, "cut")
    user.wait_for_phase("cut", "Running")
    pods = uids(user, "cut")
    kill_apiserver(user)
    status = user.wait_for_phase("cut", "Succeeded", "Failed")
    assert (status["phase"], status["attempt"], status.get("restarts", 0)) == ("Succeeded", 1, 0)
    assert uids(user, "cut") == pods
    assert user.logs("cut-worker-1").split() == NUMBERS


@pytest.mark.long_on_cluster
def test_waiting_pods_of_an_aresjob_are_released_by_the_next_operator(user: User) -> None:
    """Their initializers repeat the request until an operator answers."""
    main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", "sleep 8"]}
    template = {"spec": {"containers": [main]}}
    worker = {
        "replicas": 8,
        "dependence": {"roleNames": ["gate"], "rolePhase": "Succeeded"},
        "template": template,
    }
    spec = {"frameworkType": "custom", "roleSpecs": {"gate": {"template": template}, "worker": worker}}
    user.apply({"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "held"}, "spec": spec})
    list_held_pods = (
        "get",
        "pods",
        "-l",
        "ares.io/job-name=held,ares.io/replica-type=worker",
        "--no-headers",
    )

    def held_pods() -> str:
        return user.kubectl(*list_held_pods).stdout

    wait_for(lambda: held_pods().count("Init:0/1") == 8, held_pods, 60)
    user.target.kill_operator()
    phase = ("get", "aj", "held", "-o", "jsonpath={.status.phase}")
    wait_for(lambda: user.kubectl(*phase).stdout == "Succeeded", held_pods, 120)
