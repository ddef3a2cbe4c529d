"""AresJobs as their users know them: kubectl alone, on both grounds."""

import json
from functools import partial
from typing import cast

import pytest
import yaml

from tests.support import examples
from tests.support.aresjob_runs import run_to_success
from tests.support.commands import REPOSITORY
from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for

CODE = "until [ -e /tmp/code ]; do sleep 0.2; done; exit $(cat /tmp/code)"
"""Ends with the number that somebody writes into the file."""


def status(user: User, name: str) -> Json:
    return cast("Json", user.get("aj", name).get("status", {}))


def until(user: User, name: str, *phases: str) -> Json:
    described = lambda: user.kubectl("describe", "aj", name).stdout  # noqa: E731
    wait_for(lambda: status(user, name).get("phase") in phases, described, 90)
    return status(user, name)


def condition(user: User, name: str, kind: str) -> dict[str, str]:
    found = cast("list[dict[str, str]]", status(user, name).get("conditions", []))
    return next((one for one in found if one["type"] == kind), {})


def shown(user: User) -> dict[str, str]:
    """What `kubectl get pods` shows as STATUS, by the name of the pod."""
    lines = user.kubectl("get", "pods", "--no-headers").stdout.splitlines()
    return {line.split()[0]: line.split()[2] for line in lines}


def job(name: str, framework: str = "custom", **roles: Json) -> Json:
    return {
        "apiVersion": "ares.io/v1",
        "kind": "AresJob",
        "metadata": {"name": name},
        "spec": {"frameworkType": framework, "roleSpecs": roles},
    }


def role(script: str, container: str = "main", **more: object) -> Json:
    main = {"name": container, "image": IMAGE, "command": ["/bin/sh", "-c", script]}
    return {"template": {"spec": {"containers": [main]}}, **more}


def end(user: User, pod: str, code: int) -> None:
    user.kubectl("exec", pod, "--", "sh", "-c", f"echo {code} > /tmp/code.new; mv /tmp/code.new /tmp/code")


@pytest.mark.long_on_cluster
def test_the_first_example_shows_what_is_in_force(user: User) -> None:
    name = run_to_success(user, yaml.safe_load((REPOSITORY / examples.FIRST_ARES).read_text()))
    assert set(user.logs(f"{name}-server-0").splitlines()) == {"hello worker-0", "hello worker-1"}
    stored = cast("dict[str, Json]", user.get("aj", name))["spec"]
    assert cast("Json", stored["jobPhasePolicy"]) == {
        "failed": [["server"], ["worker"]],
        "succeeded": [["server", "worker"]],
    }
    table = user.kubectl("get", "aj", name).stdout.splitlines()
    assert table[0].split() == ["NAME", "NAMESPACE", "FRAMEWORK", "PHASE", "AGE"]
    assert table[1].split()[:4] == [name, user.namespace, "custom", "Succeeded"]


def test_dependents_show_that_they_wait(user: User) -> None:
    """52. the launcher shows `Init:0/1` while the worker starts; both Running afterwards; the host file."""
    slow = {"name": "slow", "image": IMAGE, "command": ["/bin/sh", "-c", CODE]}
    worker = role(CODE)
    cast("dict[str, Json]", worker["template"])["spec"]["initContainers"] = [slow]
    user.apply(job("mpi", "mpi", launcher=role(f"cat /etc/mpi/hostfile; {CODE}"), worker=worker))
    wait_for(lambda: shown(user).get("mpi-launcher-0") == "Init:0/1", lambda: str(shown(user)), 60)
    wait_for(lambda: shown(user)["mpi-worker-0"].startswith("Init:"), lambda: str(shown(user)), 60)
    wait_for(lambda: _runs(user, "mpi-worker-0", "slow"), lambda: str(shown(user)), 60)
    user.kubectl("exec", "mpi-worker-0", "-c", "slow", "--", "sh", "-c", "echo 0 > /tmp/code")
    until(user, "mpi", "Running")
    assert (shown(user)["mpi-launcher-0"], shown(user)["mpi-worker-0"]) == ("Running", "Running")
    ips = [_ip(user, name) for name in ("mpi-launcher-0", "mpi-worker-0")]
    assert user.logs("mpi-launcher-0", "-c", "main").splitlines() == [f"{ip} slots=1" for ip in ips]
    end(user, "mpi-launcher-0", 0)
    until(user, "mpi", "Succeeded")
    assert shown(user)["mpi-worker-0"] == "Running", "cleanPodPolicy None keeps it"
    user.kubectl("delete", "aj", "mpi")


def _runs(user: User, pod: str, container: str) -> bool:
    found = cast("dict[str, Json]", user.get("pod", pod))["status"]
    statuses = cast("list[Json]", found.get("initContainerStatuses", []))
    return any(one["name"] == container and "running" in cast("Json", one["state"]) for one in statuses)


def _ip(user: User, pod: str) -> str:
    return str(cast("dict[str, Json]", user.get("pod", pod))["status"]["podIP"])


def test_a_poisonous_job_is_told_and_cured_while_another_runs(user: User) -> None:
    """37 and 38: `worker: null` -> invalid; the operator serves another job meanwhile; an edit cures it."""
    # `kubectl apply` leaves out what is null.
    user.kubectl("create", "-f", "-", stdin=json.dumps(job("poison", worker=cast("Json", None))))
    user.apply(job("healthy", worker=role("true")))
    until(user, "healthy", "Succeeded")
    until(user, "poison", "Failed")
    failed = condition(user, "poison", "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "InvalidDefinition")
    assert failed["message"] == "spec.roleSpecs.worker: must not be null; define the role or remove its name"
    patch = json.dumps({"spec": {"roleSpecs": {"worker": role("true")}}})
    user.kubectl("patch", "aj", "poison", "--type=merge", "-p", patch)
    until(user, "poison", "Succeeded")
    failed = condition(user, "poison", "Failed")
    assert (failed["status"], failed["reason"]) == ("False", "DefinitionChanged")


@pytest.mark.long_on_cluster
def test_what_the_api_server_refuses_takes_away_what_was_made(user: User) -> None:
    """26. pod template refused by the API (422) -> invalid, children already made are deleted."""
    bad = role("true")
    containers = cast("dict[str, dict[str, list[Json]]]", bad["template"])["spec"]["containers"]
    containers[0]["imagePullPolicy"] = "Sometimes"
    user.apply(job("refused", good=role("trap 'exit 0' TERM; sleep 600 & wait"), bad=bad))
    until(user, "refused", "Failed")
    failed = condition(user, "refused", "Failed")
    assert failed["reason"] == "InvalidDefinition"
    assert "imagePullPolicy" in failed["message"]
    wait_for(lambda: not any(pod.startswith("refused-") for pod in shown(user)), lambda: str(shown(user)), 60)


def test_exit_codes(user: User) -> None:
    """14. exit 137 -> pod deleted and recreated, role not Failed; exit 1 -> pod kept, role Failed."""
    user.apply(job("codes", worker=role(CODE, restartPolicy="ExitCode")))
    until(user, "codes", "Running")
    change = ("patch", "aj", "codes", "--type=merge", "-p", '{"spec":{"frameworkType":"standalone"}}')
    assert "the framework cannot be changed after the job has started" in user.kubectl(*change, code=1).stderr
    (first,) = (pod for pod in shown(user) if pod.startswith("codes-"))
    end(user, first, 137)
    wait_for(lambda: _replaced(user, first), lambda: str(shown(user)), 60)
    (second,) = (pod for pod, phase in shown(user).items() if pod.startswith("codes-") and phase == "Running")
    assert first.startswith("codes-worker-0-")
    assert second != first
    end(user, second, 1)
    found = until(user, "codes", "Failed")
    roles = cast("dict[str, Json]", found["roleStatuses"])
    assert (roles["worker"]["reason"], roles["worker"]["restarts"]) == ("PodFailed", 1)
    assert shown(user)[second] == "Error"


def _replaced(user: User, first: str) -> bool:
    there = {pod: phase for pod, phase in shown(user).items() if pod.startswith("codes-")}
    return first not in there and list(there.values()) == ["Running"]


def events(user: User, name: str, reason: str) -> list[str]:
    """Messages of the job's events of this reason."""
    selector = f"involvedObject.name={name},involvedObject.kind=AresJob,reason={reason}"
    found = cast("list[Json]", user.get("events", "--field-selector", selector)["items"])
    return [str(one["message"]) for one in found]


def left(user: User, kinds: str = "pods,services") -> str:
    """Names of what is there."""
    return user.kubectl("get", kinds, "-o", "name").stdout


def marks(user: User, kind: str, name: str, part: str, key: str) -> str | None:
    metadata = cast("dict[str, dict[str, dict[str, str]]]", user.get(kind, name))["metadata"]
    return metadata.get(part, {}).get(key)


def test_pods_follow_the_annotations_of_their_job(user: User) -> None:
    """41. Change, add and remove `ares.io/job-priority` on the job -> pods follow; unrelated keys
    untouched."""
    key = "ares.io/job-priority"
    user.apply(job("marked", worker=role(CODE)))
    until(user, "marked", "Running")
    user.kubectl("label", "pod", "marked-worker-0", "mine=1")
    places = (
        ("aj", "marked", "labels"),
        *(("pod", "marked-worker-0", part) for part in ("labels", "annotations")),
    )

    def followed(value: str | None) -> bool:
        return all(marks(user, *place, key) == value for place in places)

    for written, value in ((f"{key}=5", "5"), (f"{key}=7", "7"), (f"{key}-", None)):
        user.kubectl("annotate", "--overwrite", "aj", "marked", written)
        wait_for(partial(followed, value), lambda: user.kubectl("get", "pods", "-o", "yaml").stdout, 30)
    assert marks(user, "pod", "marked-worker-0", "labels", "mine") == "1"
    assert marks(user, "pod", "marked-worker-0", "labels", "ares.io/job-name") == "marked"
    user.kubectl("annotate", "aj", "marked", f"{key}=very high!")
    wait_for(lambda: events(user, "marked", "InvalidLabelValue"), "no event", 30)
    user.kubectl("delete", "aj", "marked", "--wait=false")


@pytest.mark.long_on_cluster
def test_a_running_job_grows_and_what_happens_is_told_once(user: User) -> None:
    """15. Never, R2, Running, spec scaled to 3 -> pod of index 2 appears, role and job stay Running."""
    user.apply(job("told", worker=role(CODE, replicas=2)))
    until(user, "told", "Running")
    assert events(user, "told", "SuccessfulCreatePod") == ["told-worker-0 and told-worker-1"]
    assert events(user, "told", "SuccessfulCreateService") == ["told-worker"]
    size = json.dumps({"spec": {"roleSpecs": {"worker": {"replicas": 3}}}})
    user.kubectl("patch", "aj", "told", "--type=merge", "-p", size)
    wait_for(lambda: shown(user).get("told-worker-2") == "Running", lambda: str(shown(user)), 60)
    found = status(user, "told")
    assert found["phase"] == "Running", found
    assert len(events(user, "told", "StaleClusterSpec")) == 1
    end(user, "told-worker-1", 3)
    until(user, "told", "Failed")
    (failed,) = events(user, "told", "PodFailed")
    assert failed.startswith("role worker: pod=told-worker-1; nodeName="), failed
    info = json.loads(failed.partition("info=")[2])
    assert (info["exitCode"], info["reason"]) == (3, "Error")
    assert {"startedAt", "finishedAt", "containerID"} <= set(info)
    transitions = events(user, "told", "JobPhaseTransition")
    assert [one.partition(":")[0] for one in transitions if "Failed" in one] == ["Running -> Failed"]
    assert len(set(transitions)) == len(transitions)


@pytest.mark.long_on_cluster
def test_nothing_is_left_where_nothing_is_to_be_left(user: User) -> None:
    """3.5: cleanPodPolicy All deletes all pods and role services; 43. ttlSecondsAfterFinished."""
    tidy = job("tidy", worker=role("true"))
    cast("Json", tidy["spec"])["runPolicy"] = {"cleanPodPolicy": "All"}
    brief = job("brief", worker=role("true"))
    cast("Json", brief["spec"])["runPolicy"] = {"ttlSecondsAfterFinished": 2}
    user.apply(tidy, brief)
    until(user, "tidy", "Succeeded")
    wait_for(lambda: "tidy-worker" not in left(user), lambda: left(user), 60)
    assert status(user, "tidy")["phase"] == "Succeeded"
    wait_for(lambda: "/brief" not in left(user, "aj"), lambda: left(user, "aj"), 60)
    assert len(events(user, "brief", "SuccessfulDeleteJob")) == 1


@pytest.mark.long_on_cluster
def test_suspended_and_back(user: User) -> None:
    """46. suspend true on a running job -> no pods, phase Pending; false -> runs again."""
    user.apply(job("held", worker=role(CODE)))
    until(user, "held", "Running")
    for suspend, phase in ((True, "Pending"), (False, "Running")):
        patch = json.dumps({"spec": {"runPolicy": {"suspend": suspend}}})
        user.kubectl("patch", "aj", "held", "--type=merge", "-p", patch)
        until(user, "held", phase)
        wait_for(partial(_held, user, suspend), lambda: str(shown(user)), 60)
        assert condition(user, "held", "Suspended")["status"] == str(suspend)
    assert "/held-worker" in left(user, "services")
    user.kubectl("delete", "aj", "held", "--wait=false")


def _held(user: User, suspend: bool) -> bool:
    return ("held-worker-0" in shown(user)) is not suspend


@pytest.mark.long_on_cluster
def test_a_job_is_deleted_with_all_that_it_has(user: User) -> None:
    """44. Delete a job that has dependence (and one carrying `ares.io/ares-finalizer`) -> object, pods and
    services are gone."""
    waits = job("gone", a=role(CODE), b=role("true", dependence={"roleNames": ["a"]}))
    cast("Json", waits["metadata"])["finalizers"] = ["ares.io/ares-finalizer"]
    user.apply(waits)
    wait_for(lambda: "gone-b-0" in shown(user), lambda: str(shown(user)), 60)
    user.kubectl("delete", "aj", "gone", "--timeout=60s")
    wait_for(lambda: "/gone-" not in left(user), lambda: left(user), 90)


@pytest.mark.long_on_cluster
def test_a_name_that_somebody_else_has_is_waited_for(user: User) -> None:
    """2.5: never adopted or deleted: wait (Warning NameConflict) and create when the name is free."""
    user.kubectl("create", "service", "clusterip", "taken-worker", "--tcp=80")
    user.apply(job("taken", worker=role("true")))
    wait_for(lambda: events(user, "taken", "NameConflict"), lambda: str(status(user, "taken")), 60)
    assert "taken-worker" in events(user, "taken", "NameConflict")[0]
    assert status(user, "taken")["phase"] in ("Pending", "Starting")
    user.kubectl("delete", "service", "taken-worker")
    until(user, "taken", "Succeeded")


@pytest.mark.long_on_cluster
def test_a_stub_for_tests(user: User) -> None:
    """3.6: demo makes no pods or services, goes Pending -> Starting and stays."""
    user.apply(job("demo", "demo", worker=role("true")))
    until(user, "demo", "Starting")
    assert "/demo-" not in left(user)
    user.kubectl("delete", "aj", "demo", "--timeout=60s")
