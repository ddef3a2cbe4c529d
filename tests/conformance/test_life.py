"""The life of a TrainingRun with real pods: what fails, goes away, is stopped, resized or removed."""

from tests.support.builders import pod_template, run
from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import wait_for

OBEDIENT = "trap 'exit 143' TERM; until [ -s /tmp/end ]; do sleep 0.1; done; exit $(cat /tmp/end)"
"""A worker that ends with the code that it is told."""


def script(text: str) -> dict[str, object]:
    return pod_template(IMAGE, command=["sh", "-c", text])


WORKER = script(OBEDIENT)


def tell(user: User, pod: str, code: int) -> None:
    user.kubectl("exec", pod, "--", "sh", "-c", f"echo {code} > /tmp/end")


def uid(user: User, pod: str) -> str:
    return user.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}", code=None).stdout


def ready(user: User, pod: str, other_than: str = "") -> None:
    """Until a pod of this name runs, which is not the one before."""
    wait_for(
        lambda: (found := uid(user, pod)) and found != other_than,
        lambda: user.kubectl("get", "pods").stdout,
        60,
    )
    user.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")


def pods_of(user: User, name: str) -> list[str]:
    listed = user.kubectl("get", "pods", "-l", f"argosy.dev/job={name}", "-o", "name").stdout.split()
    return sorted(one.removeprefix("pod/") for one in listed)


def test_a_pod_that_fails_is_replaced_and_counted(user: User) -> None:
    user.apply(run("fails").role("worker", 2, restart="OnFailure", template=WORKER))
    user.wait_for_phase("fails", "Running")
    before, other = uid(user, "fails-worker-1"), uid(user, "fails-worker-0")
    tell(user, "fails-worker-1", 5)
    ready(user, "fails-worker-1", before)
    status = user.wait_for_phase("fails", "Running")
    assert (status["attempt"], status["restarts"]) == (1, 1)
    assert uid(user, "fails-worker-0") == other, "the other went on"
    for index in (0, 1):
        tell(user, f"fails-worker-{index}", 0)
    user.wait_for_phase("fails", "Succeeded")
    assert "worker-1 failed (exit 5)" in user.kubectl("events", "--for", "trainingrun/fails").stdout


def test_a_pod_that_is_taken_away_is_replaced_and_not_counted(user: User) -> None:
    user.apply(run("taken").role("worker", 2, restart="OnFailure", template=WORKER).limits(restarts=0))
    user.wait_for_phase("taken", "Running")
    before = uid(user, "taken-worker-0")
    user.kubectl("delete", "pod", "taken-worker-0")
    ready(user, "taken-worker-0", before)
    status = user.wait_for_phase("taken", "Running")
    assert (status["attempt"], status.get("restarts", 0)) == (1, 0)
    user.kubectl("delete", "tr", "taken")


def test_a_run_without_restarts_left_fails_with_its_cause_and_keeps_what_failed(user: User) -> None:
    user.apply(run("ends").role("worker", 2, template=WORKER).limits(restarts=0))
    user.wait_for_phase("ends", "Running")
    tell(user, "ends-worker-1", 3)
    status = user.wait_for_phase("ends", "Failed")
    assert "worker-1 failed (exit 3)" in str(status["message"])
    wait_for(lambda: pods_of(user, "ends") == ["ends-worker-1"], "only the failed pod stays", 60)
    user.kubectl("wait", "tr/ends", "--for=condition=Failed", "--timeout=60s")


def test_a_suspended_run_has_no_pods_and_comes_back(user: User) -> None:
    user.apply(run("rests").role("worker", 2, template=WORKER))
    user.wait_for_phase("rests", "Running")
    user.kubectl("patch", "tr", "rests", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    user.wait_for_phase("rests", "Suspended")
    wait_for(lambda: pods_of(user, "rests") == [], "its pods are gone", 60)
    user.kubectl("patch", "tr", "rests", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    status = user.wait_for_phase("rests", "Running")
    assert (status["attempt"], status.get("restarts", 0)) == (2, 0)
    user.kubectl("delete", "tr", "rests")


def test_an_elastic_run_is_scaled_while_it_runs(user: User) -> None:
    user.apply(run("grows").role("worker", 1, elastic={"min": 1, "max": 3}, template=WORKER))
    user.wait_for_phase("grows", "Running")
    first = uid(user, "grows-worker-0")
    user.kubectl("scale", "tr/grows", "--replicas=3")
    for index in (1, 2):
        ready(user, f"grows-worker-{index}")
    wait_for(lambda: user.status("grows").get("workers") == "3/3", "all three run", 60)
    user.kubectl("scale", "tr/grows", "--replicas=1")
    wait_for(lambda: pods_of(user, "grows") == ["grows-worker-0"], "one is left", 60)
    assert uid(user, "grows-worker-0") == first
    user.kubectl("delete", "tr", "grows")


def test_a_run_over_its_deadline_fails(user: User) -> None:
    user.apply(run("late").role("worker", 1, template=WORKER).limits(activeDeadline="3s"))
    assert user.wait_for_phase("late", "Failed")["reason"] == "DeadlineExceeded"
    wait_for(lambda: pods_of(user, "late") == [], "its pod is gone", 60)


def test_a_run_that_has_no_room_waits_and_says_why(user: User) -> None:
    large = pod_template(IMAGE, command=["true"], resources={"requests": {"cpu": "5000"}})
    user.apply(run("large").role("worker", 1, template=large))
    wait_for(
        lambda: user.status("large").get("reason") == "Unschedulable",
        lambda: user.kubectl("describe", "tr", "large").stdout,
        60,
    )
    assert "Insufficient cpu" in str(user.status("large")["message"])
    user.kubectl("delete", "tr", "large")


def test_a_run_goes_when_its_time_is_over_and_all_that_was_its_own(user: User) -> None:
    user.apply(run("brief").role("worker", 1, template=script("true")).limits(ttlAfterSucceeded="1s"))
    user.kubectl("wait", "--for=delete", "tr/brief", "--timeout=60s")
    wait_for(lambda: pods_of(user, "brief") == [], "its pod is gone", 60)
    assert "brief" not in user.kubectl("get", "services,serviceaccounts,configmaps", "-o", "name").stdout


def test_a_deleted_run_takes_all_that_was_its_own(user: User) -> None:
    user.apply(run("unwanted").role("worker", 2, template=WORKER))
    user.wait_for_phase("unwanted", "Running")
    assert user.argosy("rm", "unwanted").stdout == "unwanted deleted\n"
    assert pods_of(user, "unwanted") == []
    wait_for(
        lambda: "unwanted" not in user.kubectl("get", "services,configmaps", "-o", "name").stdout,
        "its services are gone",
        60,
    )


def test_a_command_that_is_not_there_fails_the_run(user: User) -> None:
    missing = pod_template(IMAGE, command=["/no/such/program"])
    user.apply(run("typing").role("worker", 1, template=missing).limits(restarts=0))
    status = user.wait_for_phase("typing", "Failed")
    assert "worker-0 failed" in str(status["message"])


def test_workers_find_each_other_by_the_names_they_are_given(user: User) -> None:
    ask = (
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
    template = pod_template(IMAGE, command=["python3", "-c", ask])
    user.run_to_success(run("friends").role("worker", 2, template=template))
    assert user.logs("friends-worker-0") == user.logs("friends-worker-1") == "True\n"
