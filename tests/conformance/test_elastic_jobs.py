"""TrainingJobs that are scaled while they run, on the local control plane and on a real cluster."""

from typing import cast

import pytest

from tests.support import examples
from tests.support.horovod_runs import assert_result_of_an_undisturbed_run, steps_of
from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for

POLLING = "while :; do echo $(/etc/edl/discover_hosts.sh); sleep 0.5; done"
"""A driver that reads the host list again and again, and is no Horovod."""


def training_job(name: str, script: str, **spec: object) -> Json:
    launcher = {"name": "launcher", "image": IMAGE, "command": ["/bin/sh", "-c", script]}
    worker = {"name": "worker", "image": IMAGE}
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "launcherAttachMode": "kubexec",
            "etReplicaSpecs": {
                "launcher": {"template": {"spec": {"containers": [launcher]}}},
                "worker": {
                    "replicas": 2,
                    "minReplicas": 1,
                    "maxReplicas": 9,
                    "template": {"spec": {"containers": [worker], "terminationGracePeriodSeconds": 5}},
                },
            },
            **spec,
        },
    }


def scaler(kind: str, name: str, job: str, **spec: object) -> Json:
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"name": job}, "timeout": 120, **spec},
    }


def phase(user: User, kind: str, name: str) -> str:
    return user.kubectl("get", kind, name, "-o", "jsonpath={.status.phase}").stdout


def wait_for_phase(user: User, kind: str, name: str, wanted: str, seconds: float = 120) -> None:
    def described() -> str:
        return user.kubectl("describe", kind, name).stdout + user.kubectl("describe", "pods").stdout

    def is_reached() -> bool:
        current = phase(user, kind, name)
        assert current not in {"Failed", "ScaleFailed"} - {wanted}, described()
        return current == wanted

    wait_for(is_reached, described, seconds)


def workers(user: User, job: str) -> list[str]:
    words = ("get", "pods", "-l", f"training-job-name={job},training-job-role=worker", "-o", "name")
    return sorted(line.removeprefix("pod/") for line in user.kubectl(*words).stdout.split())


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


def scale(user: User, kind: str, name: str, job: str, **spec: object) -> None:
    user.apply(scaler(kind, name, job, **spec))
    wait_for_phase(user, kind.lower(), name, "ScaleSucceeded")


def test_workers_are_added_and_removed_while_the_launcher_runs(user: User) -> None:
    """53, and the README: a driver that polls sees 2, 4 and 3 hosts; no pod that stays is touched."""
    user.apply(training_job("poll", POLLING))
    wait_for_phase(user, "trainingjob", "poll", "Running")
    table = user.kubectl("get", "trainingjob", "poll").stdout.splitlines()
    assert table[0].split() == ["NAME", "PHASE", "AGE"]
    stays = ("poll-launcher", "poll-worker-0")
    before = identities(user, *stays)
    everybody = {f"poll-worker-{index}" for index in range(4)}
    scale(user, "ScaleOut", "out", "poll", toAdd={"count": 2})
    wait_for(lambda: last_hosts(user, "poll") == everybody, lambda: user.logs("poll-launcher"), 60)
    scale(user, "ScaleIn", "in", "poll", toDelete={"podNames": ["poll-worker-1"]})
    assert workers(user, "poll") == ["poll-worker-0", "poll-worker-2", "poll-worker-3"]
    left = everybody - {"poll-worker-1"}
    wait_for(lambda: last_hosts(user, "poll") == left, lambda: user.logs("poll-launcher"), 60)
    assert identities(user, *stays) == before
    user.kubectl("delete", "trainingjob", "poll")
    wait_for(lambda: workers(user, "poll") == [], lambda: str(workers(user, "poll")), 60)


def wait_for_size(user: User, job: str, size: int) -> None:
    def has_size() -> bool:
        return [step.size for step in steps_of(user.logs(f"{job}-launcher", "-c", "launcher"))][-1:] == [size]

    wait_for(has_size, lambda: user.logs(f"{job}-launcher", "--tail=20"), 180)


@pytest.mark.long
def test_horovod_trains_on_while_workers_join_and_leave(user: User) -> None:
    """Horovod elastic, 2 to 4 to 1 to 3 workers: no committed step is lost, and the result is right."""
    examples.require("examples/horovod/mpi.yaml")
    command = (
        "horovodrun -np 2 --min-np 1 --max-np 4 --network-interfaces eth0"
        " --host-discovery-script /etc/edl/discover_hosts.sh python examples/et/train.py"
    )
    job = training_job("horovod", f"STEPS=600 exec {command}")
    user.apply(examples.with_mounts(job, "horovod"))
    wait_for_phase(user, "trainingjob", "horovod", "Running")
    wait_for_size(user, "horovod", 2)
    scale(user, "ScaleOut", "two-more", "horovod", toAdd={"count": 2})
    wait_for_size(user, "horovod", 4)
    scale(user, "ScaleIn", "three-less", "horovod", toDelete={"count": 3})
    wait_for_size(user, "horovod", 1)
    user.kubectl("scale", "trainingjob/horovod", "--replicas=3")
    wait_for_size(user, "horovod", 3)
    wait_for_phase(user, "trainingjob", "horovod", "Succeeded", 300)
    output = user.logs("horovod-launcher", "-c", "launcher")
    assert steps_of(output)[-1].number == 600
    assert_result_of_an_undisturbed_run(output)
