"""The life of a TrainingRun with real pods: what fails, goes away, is stopped, resized or removed."""

from tests.support.builders import pod_template, run
from tests.support.targets import IMAGE
from tests.support.user import Tenant
from tests.support.waiting import wait_for

OBEDIENT = "trap 'exit 143' TERM; until [ -s /tmp/end ]; do sleep 0.1; done; exit $(cat /tmp/end)"
"""A worker that ends with the code that it is told."""


def script(text: str) -> dict[str, object]:
    return pod_template(IMAGE, command=["sh", "-c", text])


WORKER = script(OBEDIENT)


def tell(tenant: Tenant, pod: str, code: int) -> None:
    tenant.kubectl("exec", pod, "--", "sh", "-c", f"echo {code} > /tmp/end")


def uid(tenant: Tenant, pod: str) -> str:
    return tenant.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}", code=None).stdout


def ready(tenant: Tenant, pod: str, other_than: str = "") -> None:
    """Until a pod of this name runs, which is not the one before."""
    wait_for(
        lambda: (found := uid(tenant, pod)) and found != other_than,
        lambda: tenant.kubectl("get", "pods").stdout,
        60,
    )
    tenant.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=60s")


def pods_of(tenant: Tenant, name: str) -> list[str]:
    listed = tenant.kubectl("get", "pods", "-l", f"argosy.dev/job={name}", "-o", "name").stdout.split()
    return sorted(one.removeprefix("pod/") for one in listed)


def test_a_pod_that_fails_is_replaced_and_counted(tenant: Tenant) -> None:
    tenant.apply(run("fails").role("worker", 2, restart="OnFailure", template=WORKER))
    tenant.until_phase("fails", "Running")
    before, other = uid(tenant, "fails-worker-1"), uid(tenant, "fails-worker-0")
    tell(tenant, "fails-worker-1", 5)
    ready(tenant, "fails-worker-1", before)
    status = tenant.until_phase("fails", "Running")
    assert (status["attempt"], status["restarts"]) == (1, 1)
    assert uid(tenant, "fails-worker-0") == other, "the other went on"
    for index in (0, 1):
        tell(tenant, f"fails-worker-{index}", 0)
    tenant.until_phase("fails", "Succeeded")
    assert "worker-1 failed (exit 5)" in tenant.kubectl("events", "--for", "trainingrun/fails").stdout


def test_a_pod_that_is_taken_away_is_replaced_and_not_counted(tenant: Tenant) -> None:
    tenant.apply(run("taken").role("worker", 2, restart="OnFailure", template=WORKER).limits(restarts=0))
    tenant.until_phase("taken", "Running")
    before = uid(tenant, "taken-worker-0")
    tenant.kubectl("delete", "pod", "taken-worker-0")
    ready(tenant, "taken-worker-0", before)
    status = tenant.until_phase("taken", "Running")
    assert (status["attempt"], status.get("restarts", 0)) == (1, 0)
    tenant.kubectl("delete", "tr", "taken")


def test_a_run_without_restarts_left_fails_with_its_cause_and_keeps_what_failed(tenant: Tenant) -> None:
    tenant.apply(run("ends").role("worker", 2, template=WORKER).limits(restarts=0))
    tenant.until_phase("ends", "Running")
    tell(tenant, "ends-worker-1", 3)
    status = tenant.until_phase("ends", "Failed")
    assert "worker-1 failed (exit 3)" in str(status["message"])
    wait_for(lambda: pods_of(tenant, "ends") == ["ends-worker-1"], "only the failed pod stays", 60)
    tenant.kubectl("wait", "tr/ends", "--for=condition=Failed", "--timeout=60s")


def test_a_suspended_run_has_no_pods_and_comes_back(tenant: Tenant) -> None:
    tenant.apply(run("rests").role("worker", 2, template=WORKER))
    tenant.until_phase("rests", "Running")
    tenant.kubectl("patch", "tr", "rests", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    tenant.until_phase("rests", "Suspended")
    wait_for(lambda: pods_of(tenant, "rests") == [], "its pods are gone", 60)
    tenant.kubectl("patch", "tr", "rests", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    status = tenant.until_phase("rests", "Running")
    assert (status["attempt"], status.get("restarts", 0)) == (2, 0)
    tenant.kubectl("delete", "tr", "rests")


def test_an_elastic_run_is_scaled_while_it_runs(tenant: Tenant) -> None:
    tenant.apply(run("grows").role("worker", 1, elastic={"min": 1, "max": 3}, template=WORKER))
    tenant.until_phase("grows", "Running")
    first = uid(tenant, "grows-worker-0")
    tenant.kubectl("scale", "tr/grows", "--replicas=3")
    for index in (1, 2):
        ready(tenant, f"grows-worker-{index}")
    wait_for(lambda: tenant.status("grows").get("workers") == "3/3", "all three run", 60)
    tenant.kubectl("scale", "tr/grows", "--replicas=1")
    wait_for(lambda: pods_of(tenant, "grows") == ["grows-worker-0"], "one is left", 60)
    assert uid(tenant, "grows-worker-0") == first
    tenant.kubectl("delete", "tr", "grows")


def test_a_run_over_its_deadline_fails(tenant: Tenant) -> None:
    tenant.apply(run("late").role("worker", 1, template=WORKER).limits(activeDeadline="3s"))
    assert tenant.until_phase("late", "Failed")["reason"] == "DeadlineExceeded"
    wait_for(lambda: pods_of(tenant, "late") == [], "its pod is gone", 60)


def test_a_run_that_has_no_room_waits_and_says_why(tenant: Tenant) -> None:
    large = pod_template(IMAGE, command=["true"], resources={"requests": {"cpu": "5000"}})
    tenant.apply(run("large").role("worker", 1, template=large))
    wait_for(
        lambda: tenant.status("large").get("reason") == "Unschedulable",
        lambda: tenant.kubectl("describe", "tr", "large").stdout,
        60,
    )
    assert "Insufficient cpu" in str(tenant.status("large")["message"])
    tenant.kubectl("delete", "tr", "large")


def test_a_run_goes_when_its_time_is_over_and_all_that_was_its_own(tenant: Tenant) -> None:
    tenant.apply(run("brief").role("worker", 1, template=script("true")).limits(ttlAfterSucceeded="1s"))
    tenant.kubectl("wait", "--for=delete", "tr/brief", "--timeout=60s")
    wait_for(lambda: pods_of(tenant, "brief") == [], "its pod is gone", 60)
    assert "brief" not in tenant.kubectl("get", "services,serviceaccounts,configmaps", "-o", "name").stdout


def test_a_deleted_run_takes_all_that_was_its_own(tenant: Tenant) -> None:
    tenant.apply(run("unwanted").role("worker", 2, template=WORKER))
    tenant.until_phase("unwanted", "Running")
    assert tenant.argosy("rm", "unwanted").stdout == "unwanted deleted\n"
    assert pods_of(tenant, "unwanted") == []
    wait_for(
        lambda: "unwanted" not in tenant.kubectl("get", "services,configmaps", "-o", "name").stdout,
        "its services are gone",
        60,
    )


def test_a_command_that_is_not_there_fails_the_run(tenant: Tenant) -> None:
    missing = pod_template(IMAGE, command=["/no/such/program"])
    tenant.apply(run("typing").role("worker", 1, template=missing).limits(restarts=0))
    status = tenant.until_phase("typing", "Failed")
    assert "worker-0 failed" in str(status["message"])


def test_workers_find_each_other_by_the_names_they_are_given(tenant: Tenant) -> None:
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
    tenant.finish(run("friends").role("worker", 2, template=template))
    assert tenant.said("friends-worker-0") == tenant.said("friends-worker-1") == "True\n"
