"""The lifecycle of a TrainingRun with real pods: failure, deletion, suspension, scaling, deadline and TTL."""

import pytest

from tests.support.builders import pod_template, run
from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import wait_for

EXIT_WHEN_ORDERED = "trap 'exit 143' TERM; until [ -s /tmp/end ]; do sleep 0.1; done; exit $(cat /tmp/end)"
"""Waits for a number in /tmp/end and exits with it."""


def script(text: str) -> dict[str, object]:
    return pod_template(IMAGE, command=["sh", "-c", text])


WORKER = script(EXIT_WHEN_ORDERED)


def end_with(user: User, pod: str, code: int) -> None:
    done = user.kubectl("exec", pod, "--", "sh", "-c", f"echo {code} > /tmp/end", code=None)
    assert done.returncode in (0, 137), done.stderr  # the end of the pod may kill the command that ended it


def uid(user: User, pod: str) -> str:
    return user.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}", code=None).stdout


def wait_until_ready(user: User, pod: str, other_than: str = "") -> None:
    """Wait until a pod of this name is Ready whose uid is another than `other_than`."""
    wait_for(
        lambda: (current := uid(user, pod)) and current != other_than,
        lambda: user.kubectl("get", "pods").stdout,
        60,
    )
    user.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")


def pods_of(user: User, name: str) -> list[str]:
    listed = user.kubectl("get", "pods", "-l", f"argosy.dev/job={name}", "-o", "name").stdout.split()
    return sorted(name.removeprefix("pod/") for name in listed)


def test_failed_pod_is_replaced_and_counts_as_a_restart(user: User) -> None:
    user.apply(run("fails").role("worker", 2, restart="OnFailure", template=WORKER))
    user.wait_for_phase("fails", "Running")
    before, other = uid(user, "fails-worker-1"), uid(user, "fails-worker-0")
    end_with(user, "fails-worker-1", 5)
    wait_until_ready(user, "fails-worker-1", before)
    status = user.wait_for_phase("fails", "Running")
    assert (status["attempt"], status["restarts"]) == (1, 1)
    assert uid(user, "fails-worker-0") == other, "the other pod was replaced"
    for index in (0, 1):
        end_with(user, f"fails-worker-{index}", 0)
    user.wait_for_phase("fails", "Succeeded")
    assert "worker-1 failed (exit 5)" in user.kubectl("events", "--for", "trainingrun/fails").stdout


def test_deleted_pod_is_replaced_and_does_not_count_as_a_restart(user: User) -> None:
    user.apply(run("deleted").role("worker", 2, restart="OnFailure", template=WORKER).limits(restarts=0))
    user.wait_for_phase("deleted", "Running")
    before = uid(user, "deleted-worker-0")
    user.kubectl("delete", "pod", "deleted-worker-0")
    wait_until_ready(user, "deleted-worker-0", before)
    status = user.wait_for_phase("deleted", "Running")
    assert (status["attempt"], status.get("restarts", 0)) == (1, 0)
    user.kubectl("delete", "tr", "deleted")


@pytest.mark.long_on_cluster
def test_failure_without_restarts_left_fails_the_run_and_keeps_the_failed_pod(user: User) -> None:
    user.apply(run("ends").role("worker", 2, template=WORKER).limits(restarts=0))
    user.wait_for_phase("ends", "Running")
    end_with(user, "ends-worker-1", 3)
    status = user.wait_for_phase("ends", "Failed")
    assert "worker-1 failed (exit 3)" in str(status["message"])
    wait_for(lambda: pods_of(user, "ends") == ["ends-worker-1"], "other pods than the failed one remain", 60)
    user.kubectl("wait", "tr/ends", "--for=condition=Failed", "--timeout=60s")


@pytest.mark.long_on_cluster
def test_suspended_run_has_no_pods_and_resumes(user: User) -> None:
    user.apply(run("rests").role("worker", 2, template=WORKER))
    user.wait_for_phase("rests", "Running")
    user.kubectl("patch", "tr", "rests", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    user.wait_for_phase("rests", "Suspended")
    wait_for(lambda: pods_of(user, "rests") == [], "pods remain", 60)
    user.kubectl("patch", "tr", "rests", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    status = user.wait_for_phase("rests", "Running")
    assert (status["attempt"], status.get("restarts", 0)) == (2, 0)
    user.kubectl("delete", "tr", "rests")


def test_elastic_run_is_scaled_up_and_down_while_running(user: User) -> None:
    user.apply(run("grows").role("worker", 1, elastic={"min": 1, "max": 3}, template=WORKER))
    user.wait_for_phase("grows", "Running")
    first = uid(user, "grows-worker-0")
    user.kubectl("scale", "tr/grows", "--replicas=3")
    for index in (1, 2):
        wait_until_ready(user, f"grows-worker-{index}")
    wait_for(lambda: user.status("grows").get("workers") == "3/3", "not all three pods run", 60)
    user.kubectl("scale", "tr/grows", "--replicas=1")
    wait_for(lambda: pods_of(user, "grows") == ["grows-worker-0"], "not exactly one pod remains", 60)
    assert uid(user, "grows-worker-0") == first
    user.kubectl("delete", "tr", "grows")


@pytest.mark.long_on_cluster
def test_run_past_its_active_deadline_fails(user: User) -> None:
    user.apply(run("late").role("worker", 1, template=WORKER).limits(activeDeadline="3s"))
    assert user.wait_for_phase("late", "Failed")["reason"] == "DeadlineExceeded"
    wait_for(lambda: pods_of(user, "late") == [], "a pod remains", 60)


@pytest.mark.long_on_cluster
def test_unschedulable_run_waits_and_shows_the_reason(user: User) -> None:
    large = pod_template(IMAGE, command=["true"], resources={"requests": {"cpu": "5000"}})
    user.apply(run("large").role("worker", 1, template=large))
    wait_for(
        lambda: user.status("large").get("reason") == "Unschedulable",
        lambda: user.kubectl("describe", "tr", "large").stdout,
        60,
    )
    assert "Insufficient cpu" in str(user.status("large")["message"])
    user.kubectl("delete", "tr", "large")


@pytest.mark.long_on_cluster
def test_run_and_its_objects_are_deleted_after_the_ttl(user: User) -> None:
    user.apply(run("brief").role("worker", 1, template=script("true")).limits(ttlAfterSucceeded="1s"))
    user.kubectl("wait", "--for=delete", "tr/brief", "--timeout=60s")
    wait_for(lambda: pods_of(user, "brief") == [], "a pod remains", 60)
    assert "brief" not in user.kubectl("get", "services,serviceaccounts,configmaps", "-o", "name").stdout


def test_deleted_run_leaves_no_pods_or_services(user: User) -> None:
    user.apply(run("unwanted").role("worker", 2, template=WORKER))
    user.wait_for_phase("unwanted", "Running")
    assert user.argosy("rm", "unwanted").stdout == "unwanted deleted\n"
    assert pods_of(user, "unwanted") == []
    wait_for(
        lambda: "unwanted" not in user.kubectl("get", "services,configmaps", "-o", "name").stdout,
        "services or ConfigMaps remain",
        60,
    )


@pytest.mark.long_on_cluster
def test_missing_program_fails_the_run(user: User) -> None:
    missing = pod_template(IMAGE, command=["/no/such/program"])
    user.apply(run("typing").role("worker", 1, template=missing).limits(restarts=0))
    status = user.wait_for_phase("typing", "Failed")
    assert "worker-0 failed" in str(status["message"])


@pytest.mark.long_on_cluster
def test_workers_resolve_each_other_by_host_name(user: User) -> None:
    resolve = (
        "import os, socket, time\n"
        "other = '%s-worker-%d.%s-worker' % (os.environ['ARGOSY_JOB'],"
        " 1 - int(os.environ['ARGOSY_INDEX']), os.environ['ARGOSY_JOB'])\n"
        "while True:\n"
        "    try:\n"
        "        print(len(socket.gethostbyname(other)) > 0)\n"
        "        break\n"
        "    except OSError:\n"
        "        time.sleep(0.2)\n"
        "time.sleep(2)\n"
    )
    template = pod_template(IMAGE, command=["python3", "-c", resolve])
    user.run_to_success(run("friends").role("worker", 2, template=template))
    assert user.logs("friends-worker-0") == user.logs("friends-worker-1") == "True\n"
