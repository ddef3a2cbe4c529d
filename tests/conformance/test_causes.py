"""What was lost and why, told alike of both kinds of job, by kubectl and by `argosy describe`."""

from typing import cast

import pytest

from tests.support import examples
from tests.support.builders import pod_template, run
from tests.support.commands import REPOSITORY
from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for

OBEDIENT = "trap 'exit 143' TERM; until [ -s /tmp/end ]; do sleep 0.1; done; exit $(cat /tmp/end)"
"""A worker that ends with the code that it is told."""
TEMPLATE = pod_template(IMAGE, command=["sh", "-c", OBEDIENT])


def ares(name: str) -> Json:
    role = {"replicas": 3, "restartPolicy": "OnFailure", "template": TEMPLATE}
    spec = {"frameworkType": "custom", "roleSpecs": {"worker": role}}
    return {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": name}, "spec": spec}


@pytest.mark.long_on_cluster
def test_a_run_tells_of_a_code_a_signal_and_a_deletion(user: User) -> None:
    user.apply(run("told").role("worker", 3, restart="OnFailure", template=TEMPLATE))
    _until_up(user, "tr", "told")
    for index, code in ((0, 7), (1, 137)):
        _end(user, "told", index, code)
        _until_restarts(user, "tr", "told", index + 1)
    user.kubectl("delete", "pod", "told-worker-2")
    history = _until_restarts(user, "tr", "told", 3)
    assert [_essence(one) for one in history] == [
        ("worker", 0, "NonZeroExit", "Pod", 7, ""),
        ("worker", 1, "Signal", "Pod", 137, "SIGKILL"),
        ("worker", 2, "Deleted", "Pod", None, ""),
    ]
    _described(user, "tr", "told", history)


def test_a_worker_beyond_its_memory_is_told_as_that(user: User) -> None:
    """The kernel kills it, the node says so, and so does the run, which gives up after the second time."""
    greedy = ["python3", "-c", "held = b'x' * (512 << 20)"]
    template = pod_template(IMAGE, command=greedy, resources={"limits": {"memory": "64Mi"}})
    user.apply(run("greedy").role("worker", template=template).limits(restarts=1))
    user.wait_for_phase("greedy", "Failed")
    status = user.status("greedy")
    history = cast("list[Json]", status["restartHistory"])
    assert [_essence(one) for one in history] == [("worker", 0, "OOMKilled", "Pod", 137, "SIGKILL")]
    assert "out of memory" in str(history[0]["message"])
    assert "out of memory" in str(status["message"])
    _described(user, "tr", "greedy", history)


def test_an_aresjob_tells_the_same(user: User) -> None:
    """Its nodes restart containers in their place; a pod that goes is another after that."""
    user.apply(ares("heard"))
    _until_up(user, "aj", "heard")
    for index, code in ((0, 7), (1, 137)):
        _end(user, "heard", index, code)
        _until_restarts(user, "aj", "heard", index + 1)
    user.kubectl("delete", _pod(user, "heard", 2))
    history = _until_restarts(user, "aj", "heard", 3)
    assert [_essence(one) for one in history] == [
        ("worker", 0, "NonZeroExit", "Container", 7, ""),
        ("worker", 1, "Signal", "Container", 137, "SIGKILL"),
        ("worker", 2, "Deleted", "Pod", None, ""),
    ]
    _described(user, "aj", "heard", history)


@pytest.mark.long_on_cluster
def test_failures_in_a_row_escalate_to_role_and_job(user: User) -> None:
    """The node's restart of a container is one too many for its pod, and that one too many for the role,
    which may start anew once."""
    escalation = {"container": 0, "pod": 0, "role": 1}
    steep = run("steep").role("worker", 3, restart="OnFailure", template=TEMPLATE)
    user.apply(steep.limits(restarts=5, escalation=escalation))
    _until_up(user, "tr", "steep")
    first = _uids(user, "steep")
    _end(user, "steep", 1, 3)
    _until_others(user, "steep", first)
    second = _uids(user, "steep")
    _until_up(user, "tr", "steep")
    _end(user, "steep", 1, 4)
    _until_others(user, "steep", second)
    history = _until_restarts(user, "tr", "steep", 4)
    assert [(one["scope"], one["exitCode"], one["attempt"]) for one in history] == [
        ("Container", 3, 1),
        ("Role", 3, 1),
        ("Container", 4, 1),
        ("Job", 4, 1),
    ]
    status = _status(user, "tr", "steep")
    assert (status["attempt"], status["restarts"]) == (2, 2)
    user.kubectl("delete", "tr", "steep")


@pytest.mark.long_on_cluster
def test_example(user: User) -> None:
    said = user.argosy("run", str(REPOSITORY / examples.ESCALATION)).stdout
    assert "worker-1 │ done in attempt 2" in said
    assert "worker-1 failed (exit 1)" in said
    history = cast("list[Json]", user.status("escalation")["restartHistory"])
    assert [(one["scope"], one["index"], one["attempt"]) for one in history] == [("Pod", 1, 1), ("Job", 1, 1)]


@pytest.mark.long_on_cluster
def test_the_everyday_verbs_know_aresjobs(user: User) -> None:
    script = ["sh", "-c", "echo hello; until [ -s /tmp/end ]; do sleep 0.1; done"]
    role = {"replicas": 1, "template": pod_template(IMAGE, command=script)}
    user.apply({**ares("known"), "spec": {"frameworkType": "custom", "roleSpecs": {"worker": role}}})
    wait_for(lambda: "hello" in user.argosy("logs", "known", code=None).stdout, "it says hello", 90)
    assert user.argosy("logs", "known").stdout == "worker-0 │ hello\n"
    wait_for(lambda: _status(user, "aj", "known").get("phase") == "Running", "it runs", 90)
    rows = [line.split() for line in user.argosy("ps").stdout.splitlines()]
    assert ["known", "AresJob", "custom", "Running", "1/1", "1"] in [row[:6] for row in rows]
    said = user.argosy("describe", "aj/known").stdout
    assert "AresJob" in said
    assert "known-worker-0" in said
    assert user.argosy("rm", "known").stdout == "known deleted\n"
    assert "not found" in user.kubectl("get", "aj", "known", code=1).stderr


def _end(user: User, name: str, index: int, code: int) -> None:
    user.kubectl("exec", _pod(user, name, index), "--", "sh", "-c", f"echo {code} > /tmp/end")


def _pod(user: User, name: str, index: int) -> str:
    chosen = f"argosy.dev/job={name},argosy.dev/index={index}"
    return user.kubectl("get", "pods", "-l", chosen, "-o", "name").stdout.strip()


def _until_others(user: User, name: str, before: set[str]) -> None:
    """Until all pods run, and none of them did before."""
    described = lambda: user.kubectl("describe", "tr", name).stdout  # noqa: E731
    wait_for(lambda: not before & _uids(user, name) and _all_run(user, name), described, 90)


def _uids(user: User, name: str) -> set[str]:
    words = ("-l", f"argosy.dev/job={name}", "-o", "jsonpath={.items[*].metadata.uid}")
    return set(user.kubectl("get", "pods", *words).stdout.split())


def _status(user: User, kind: str, name: str) -> Json:
    return cast("Json", user.get(kind, name).get("status", {}))


def _until_up(user: User, kind: str, name: str) -> None:
    described = lambda: user.kubectl("describe", kind, name).stdout  # noqa: E731
    wait_for(lambda: _status(user, kind, name).get("phase") == "Running", described, 90)


def _until_restarts(user: User, kind: str, name: str, count: int) -> list[Json]:
    """The history once it is so long and all pods run again."""
    found: list[Json] = []

    def reached() -> bool:
        status = _status(user, kind, name)
        found[:] = cast("list[Json]", status.get("restartHistory", []))
        return len(found) >= count and _all_run(user, name)

    wait_for(reached, lambda: user.kubectl("describe", kind, name).stdout, 90)
    return found


def _all_run(user: User, name: str) -> bool:
    pods = cast("list[dict[str, Json]]", user.get("pods", "-l", f"argosy.dev/job={name}")["items"])
    containers = [
        one for pod in pods for one in cast("list[Json]", pod["status"].get("containerStatuses", []))
    ]
    return len(pods) == len(containers) == 3 and all(one["ready"] for one in containers)


def _essence(one: Json) -> tuple[object, ...]:
    names = ("role", "index", "cause", "scope")
    return (*(one[name] for name in names), one.get("exitCode"), one.get("signal", ""))


def _described(user: User, kind: str, name: str, history: list[Json]) -> None:
    """Each restart is there to be read, where it happened too."""
    by_argosy = user.argosy("describe", name).stdout
    by_kubectl = user.kubectl("describe", kind, name).stdout
    assert "Restart History:" in by_kubectl
    for one in history:
        assert str(one["node"]) in str(one["message"])
        assert str(one["message"]) in by_argosy
        assert str(one["message"]) in by_kubectl
    user.kubectl("delete", kind, name)
