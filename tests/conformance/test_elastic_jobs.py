"""TrainingJobs that are scaled while they run, on the local control plane and on a real cluster."""

import secrets
from typing import cast

import pytest

from tests.support import examples
from tests.support.elastic_jobs import ElasticUser, training_job
from tests.support.horovod_runs import assert_result_of_an_undisturbed_run, steps_of
from tests.support.user import User, user_in_namespace
from tests.support.waiting import wait_for


@pytest.fixture
def et(user: User) -> ElasticUser:
    return ElasticUser(user)


def identities(user: User, *pods: str) -> list[tuple[str, int]]:
    """The uid and the container restarts of pods."""
    found = [user.get("pod", pod) for pod in pods]
    statuses = [cast("dict[str, list[dict[str, int]]]", pod["status"]) for pod in found]
    return [
        (
            cast("dict[str, str]", pod["metadata"])["uid"],
            sum(item["restartCount"] for item in status["containerStatuses"]),
        )
        for pod, status in zip(found, statuses, strict=True)
    ]


def last_hosts(user: User, job: str) -> set[str]:
    lines = user.logs(f"{job}-launcher", "-c", "launcher", "--tail=1").split()
    return {line.partition(":")[0] for line in lines}


def test_workers_are_added_and_removed_while_the_launcher_runs(user: User, et: ElasticUser) -> None:
    """53, and the README: a driver that polls sees 2, 4 and 3 hosts; no pod that stays is touched."""
    et.apply(training_job("poll"))
    et.wait_for_phase("trainingjob", "poll", "Running")
    table = user.kubectl("get", "trainingjob", "poll").stdout.splitlines()
    assert table[0].split() == ["NAME", "PHASE", "AGE"]
    stays = ("poll-launcher", "poll-worker-0")
    before = identities(user, *stays)
    everybody = {f"poll-worker-{index}" for index in range(4)}
    et.scale("ScaleOut", "out", "poll", toAdd={"count": 2})
    wait_for(lambda: last_hosts(user, "poll") == everybody, lambda: user.logs("poll-launcher"))
    et.scale("ScaleIn", "in", "poll", toDelete={"podNames": ["poll-worker-1"]})
    assert et.workers("poll") == ["poll-worker-0", "poll-worker-2", "poll-worker-3"]
    left = everybody - {"poll-worker-1"}
    wait_for(lambda: last_hosts(user, "poll") == left, lambda: user.logs("poll-launcher"))
    assert identities(user, *stays) == before
    user.kubectl("delete", "trainingjob", "poll")
    et.wait_until_gone("pods", "-l", "training-job-name=poll")


@pytest.mark.long
def test_jobs_of_one_name_in_two_namespaces_know_nothing_of_each_other(user: User, et: ElasticUser) -> None:
    """One is scaled beside the other, whose pods and host list stay as they are."""
    with user_in_namespace(user.target, f"t{secrets.token_hex(3)}") as neighbour:
        other = ElasticUser(neighbour)
        for each in (et, other):
            each.apply(training_job("twin"))
        for each in (et, other):
            each.wait_for_phase("trainingjob", "twin", "Running")
            each.wait_for_hosts("twin", "worker-0", "worker-1")
        pods = ("twin-launcher", "twin-worker-0", "twin-worker-1")
        before = identities(neighbour, *pods)
        assert set(before).isdisjoint(identities(user, *pods))
        et.scale("ScaleIn", "in", "twin", toDelete={"count": 1})
        et.wait_for_workers("twin", "worker-0")
        et.wait_for_hosts("twin", "worker-0")
        assert other.hosts("twin") == ["twin-worker-0", "twin-worker-1"]
        assert identities(neighbour, *pods) == before
        status = other.status("trainingjob", "twin")
        assert (status["phase"], status["targetWorkers"]) == ("Running", list(pods[1:]))
        user.kubectl("delete", "trainingjob", "twin")
        et.wait_until_gone("pods", "-l", "training-job-name=twin")
        assert identities(neighbour, *pods) == before, "deleted with their own job only"


def wait_for_size(user: User, job: str, size: int) -> None:
    def has_size() -> bool:
        return [step.size for step in steps_of(user.logs(f"{job}-launcher", "-c", "launcher"))][-1:] == [size]

    wait_for(has_size, lambda: user.logs(f"{job}-launcher", "--tail=20"), 180)


@pytest.mark.long
def test_horovod_trains_on_while_workers_join_and_leave(user: User, et: ElasticUser) -> None:
    """Horovod elastic, 2 to 4 to 1 to 3 workers: no committed step is lost, and the result is right."""
    examples.require("examples/horovod/mpi.yaml")
    command = (
        "horovodrun -np 2 --min-np 1 --max-np 4 --network-interfaces eth0"
        " --host-discovery-script /etc/edl/discover_hosts.sh python examples/et/train.py"
    )
    job = training_job("horovod", f"STEPS=600 exec {command}")
    et.apply(examples.with_mounts(job, "horovod"))
    et.wait_for_phase("trainingjob", "horovod", "Running")
    wait_for_size(user, "horovod", 2)
    et.scale("ScaleOut", "two-more", "horovod", toAdd={"count": 2})
    wait_for_size(user, "horovod", 4)
    et.scale("ScaleIn", "three-less", "horovod", toDelete={"count": 3})
    wait_for_size(user, "horovod", 1)
    user.kubectl("scale", "trainingjob/horovod", "--replicas=3")
    wait_for_size(user, "horovod", 3)
    et.wait_for_phase("trainingjob", "horovod", "Succeeded", 300)
    output = user.logs("horovod-launcher", "-c", "launcher")
    assert steps_of(output)[-1].number == 600
    assert_result_of_an_undisturbed_run(output)
