"""The cause of every restart is shown for TrainingRuns and AresJobs, by kubectl and `argosy describe`."""

from typing import cast

import pytest

from tests.support import examples
from tests.support.builders import pod_template, run
from tests.support.commands import REPOSITORY
from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for

EXIT_WHEN_ORDERED = "trap 'exit 143' TERM; until [ -s /tmp/end ]; do sleep 0.1; done; exit $(cat /tmp/end)"
"""Waits for a number in /tmp/end and exits with it."""
TEMPLATE = pod_template(IMAGE, command=["sh", "-c", EXIT_WHEN_ORDERED])


def ares(name: str) -> Json:
    role = {"replicas": 3, "restartPolicy": "OnFailure", "template": TEMPLATE}
    spec = {"frameworkType": "custom", "roleSpecs": {"worker": role}}
    return {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": name}, "spec": spec}


@pytest.mark.long_on_cluster
def test_trainingrun_records_an_exit_code_a_signal_and_a_deletion_as_causes(user: User) -> None:
    user.apply(run("restarts").role("worker", 3, restart="OnFailure", template=TEMPLATE))
    _wait_until_running(user, "tr", "restarts")
    for index, code in ((0, 7), (1, 137)):
        _end(user, "restarts", index, code)
        _wait_for_restarts(user, "tr", "restarts", index + 1)
    user.kubectl("delete", "pod", "restarts-worker-2")
    history = _wait_for_restarts(user, "tr", "restarts", 3)
    assert [_summary(entry) for entry in history] == [
        ("worker", 0, "NonZeroExit", "Pod", 7, ""),
        ("worker", 1, "Signal", "Pod", 137, "SIGKILL"),
        ("worker", 2, "Deleted", "Pod", None, ""),
    ]
    _check_described_and_delete(user, "tr", "restarts", history)


def test_worker_over_its_memory_limit_is_recorded_as_out_of_memory(user: User) -> None:
    """The kernel kills the worker; the run fails after the second time with this cause in its status."""
    greedy = ["python3", "-c", "held = b'x' * (512 << 20)"]
    template = pod_template(IMAGE, command=greedy, resources={"limits": {"memory": "64Mi"}})
    user.apply(run("greedy").role("worker", template=template).limits(restarts=1))
    user.wait_for_phase("greedy", "Failed")
    status = user.status("greedy")
    history = cast("list[Json]", status["restartHistory"])
    assert [_summary(entry) for entry in history] == [("worker", 0, "OOMKilled", "Pod", 137, "SIGKILL")]
    assert "out of memory" in str(history[0]["message"])
    assert "out of memory" in str(status["message"])
    _check_described_and_delete(user, "tr", "greedy", history)


def test_aresjob_records_an_exit_code_a_signal_and_a_deletion_as_causes(user: User) -> None:
    """The kubelet restarts failed containers in the same pod; a deleted pod is replaced."""
    user.apply(ares("heard"))
    _wait_until_running(user, "aj", "heard")
    for index, code in ((0, 7), (1, 137)):
        _end(user, "heard", index, code)
        _wait_for_restarts(user, "aj", "heard", index + 1)
    user.kubectl("delete", _pod(user, "heard", 2))
    history = _wait_for_restarts(user, "aj", "heard", 3)
    assert [_summary(entry) for entry in history] == [
        ("worker", 0, "NonZeroExit", "Container", 7, ""),
        ("worker", 1, "Signal", "Container", 137, "SIGKILL"),
        ("worker", 2, "Deleted", "Pod", None, ""),
    ]
    _check_described_and_delete(user, "aj", "heard", history)


@pytest.mark.long_on_cluster
def test_repeated_failures_escalate_from_container_to_role_to_job(user: User) -> None:
    """The node's restart of a container is one too many for its pod, and that one too many for the role,
    which may restart once."""
    escalation = {"container": 0, "pod": 0, "role": 1}
    steep = run("steep").role("worker", 3, restart="OnFailure", template=TEMPLATE)
    user.apply(steep.limits(restarts=5, escalation=escalation))
    _wait_until_running(user, "tr", "steep")
    first = _uids(user, "steep")
    _end(user, "steep", 1, 3)
    _wait_until_all_replaced(user, "steep", first)
    second = _uids(user, "steep")
    _wait_until_running(user, "tr", "steep")
    _end(user, "steep", 1, 4)
    _wait_until_all_replaced(user, "steep", second)
    history = _wait_for_restarts(user, "tr", "steep", 4)
    assert [(entry["scope"], entry["exitCode"], entry["attempt"]) for entry in history] == [
        ("Container", 3, 1),
        ("Role", 3, 1),
        ("Container", 4, 1),
        ("Job", 4, 1),
    ]
    status = _status(user, "tr", "steep")
    assert (status["attempt"], status["restarts"]) == (2, 2)
    user.kubectl("delete", "tr", "steep")


@pytest.mark.long_on_cluster
def test_example_of_escalation_succeeds_in_its_second_attempt(user: User) -> None:
    output = user.argosy("run", str(REPOSITORY / examples.ESCALATION)).stdout
    assert "worker-1 │ done in attempt 2" in output
    assert "worker-1 failed (exit 1)" in output
    history = cast("list[Json]", user.status("escalation")["restartHistory"])
    assert [(entry["scope"], entry["index"], entry["attempt"]) for entry in history] == [
        ("Pod", 1, 1),
        ("Job", 1, 1),
    ]


@pytest.mark.long_on_cluster
def test_logs_ps_describe_and_rm_work_for_aresjobs(user: User) -> None:
    script = ["sh", "-c", "echo hello; until [ -s /tmp/end ]; do sleep 0.1; done"]
    role = {"replicas": 1, "template": pod_template(IMAGE, command=script)}
    user.apply({**ares("known"), "spec": {"frameworkType": "custom", "roleSpecs": {"worker": role}}})
    wait_for(
        lambda: "hello" in user.argosy("logs", "known", code=None).stdout, "the job does not print hello", 90
    )
    assert user.argosy("logs", "known").stdout == "worker-0 │ hello\n"
    wait_for(lambda: _status(user, "aj", "known").get("phase") == "Running", "the job does not run", 90)
    rows = [line.split() for line in user.argosy("ps").stdout.splitlines()]
    assert ["known", "AresJob", "custom", "Running", "1/1", "1"] in [row[:6] for row in rows]
    output = user.argosy("describe", "aj/known").stdout
    assert "AresJob" in output
    assert "known-worker-0" in output
    assert user.argosy("rm", "known").stdout == "known deleted\n"
    assert "not found" in user.kubectl("get", "aj", "known", code=1).stderr


def _end(user: User, name: str, index: int, code: int) -> None:
    user.kubectl("exec", _pod(user, name, index), "--", "sh", "-c", f"echo {code} > /tmp/end")


def _pod(user: User, name: str, index: int) -> str:
    selector = f"argosy.dev/job={name},argosy.dev/index={index}"
    return user.kubectl("get", "pods", "-l", selector, "-o", "name").stdout.strip()


def _wait_until_all_replaced(user: User, name: str, before: set[str]) -> None:
    """Wait until all pods run and none is one of these."""
    described = lambda: user.kubectl("describe", "tr", name).stdout  # noqa: E731
    wait_for(lambda: not before & _uids(user, name) and _all_run(user, name), described, 90)


def _uids(user: User, name: str) -> set[str]:
    words = ("-l", f"argosy.dev/job={name}", "-o", "jsonpath={.items[*].metadata.uid}")
    return set(user.kubectl("get", "pods", *words).stdout.split())


def _status(user: User, kind: str, name: str) -> Json:
    return cast("Json", user.get(kind, name).get("status", {}))


def _wait_until_running(user: User, kind: str, name: str) -> None:
    described = lambda: user.kubectl("describe", kind, name).stdout  # noqa: E731
    wait_for(lambda: _status(user, kind, name).get("phase") == "Running", described, 90)


def _wait_for_restarts(user: User, kind: str, name: str, count: int) -> list[Json]:
    """Wait until the history has this many entries and all pods run; returns the history."""
    history_found: list[Json] = []

    def reached() -> bool:
        status = _status(user, kind, name)
        history_found[:] = cast("list[Json]", status.get("restartHistory", []))
        return len(history_found) >= count and _all_run(user, name)

    wait_for(reached, lambda: user.kubectl("describe", kind, name).stdout, 90)
    return history_found


def _all_run(user: User, name: str) -> bool:
    pods = cast("list[dict[str, Json]]", user.get("pods", "-l", f"argosy.dev/job={name}")["items"])
    containers = [
        entry for pod in pods for entry in cast("list[Json]", pod["status"].get("containerStatuses", []))
    ]
    return len(pods) == len(containers) == 3 and all(entry["ready"] for entry in containers)


def _summary(entry: Json) -> tuple[object, ...]:
    names = ("role", "index", "cause", "scope")
    return (*(entry[name] for name in names), entry.get("exitCode"), entry.get("signal", ""))


def _check_described_and_delete(user: User, kind: str, name: str, history: list[Json]) -> None:
    """Check that `argosy describe` and `kubectl describe` show each restart with its node; delete the job."""
    by_argosy = user.argosy("describe", name).stdout
    by_kubectl = user.kubectl("describe", kind, name).stdout
    assert "Restart History:" in by_kubectl
    for entry in history:
        assert str(entry["node"]) in str(entry["message"])
        assert str(entry["message"]) in by_argosy
        assert str(entry["message"]) in by_kubectl
    user.kubectl("delete", kind, name)
