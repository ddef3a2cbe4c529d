"""AresJobs as their users know them: kubectl alone, on both grounds."""

import json
from functools import partial
from typing import cast

import pytest
import yaml

from tests.support import examples
from tests.support.aresjob_runs import finished
from tests.support.commands import REPOSITORY
from tests.support.targets import IMAGE
from tests.support.user import Json, Tenant
from tests.support.waiting import wait_for

CODE = "until [ -e /tmp/code ]; do sleep 0.2; done; exit $(cat /tmp/code)"
"""Ends with the number that somebody writes into the file."""


def status(tenant: Tenant, name: str) -> Json:
    return cast("Json", tenant.get("aj", name).get("status", {}))


def until(tenant: Tenant, name: str, *phases: str) -> Json:
    described = lambda: tenant.kubectl("describe", "aj", name).stdout  # noqa: E731
    wait_for(lambda: status(tenant, name).get("phase") in phases, described, 90)
    return status(tenant, name)


def condition(tenant: Tenant, name: str, kind: str) -> dict[str, str]:
    found = cast("list[dict[str, str]]", status(tenant, name).get("conditions", []))
    return next((one for one in found if one["type"] == kind), {})


def shown(tenant: Tenant) -> dict[str, str]:
    """What `kubectl get pods` shows as STATUS, by the name of the pod."""
    lines = tenant.kubectl("get", "pods", "--no-headers").stdout.splitlines()
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


def end(tenant: Tenant, pod: str, code: int) -> None:
    tenant.kubectl("exec", pod, "--", "sh", "-c", f"echo {code} > /tmp/code.new; mv /tmp/code.new /tmp/code")


@pytest.mark.long_on_cluster
def test_the_first_example_shows_what_is_in_force(tenant: Tenant) -> None:
    name = finished(tenant, yaml.safe_load((REPOSITORY / examples.FIRST_ARES).read_text()))
    assert set(tenant.said(f"{name}-server-0").splitlines()) == {"hello worker-0", "hello worker-1"}
    stored = cast("dict[str, Json]", tenant.get("aj", name))["spec"]
    assert cast("Json", stored["jobPhasePolicy"]) == {
        "failed": [["server"], ["worker"]],
        "succeeded": [["server", "worker"]],
    }
    table = tenant.kubectl("get", "aj", name).stdout.splitlines()
    assert table[0].split() == ["NAME", "NAMESPACE", "FRAMEWORK", "PHASE", "AGE"]
    assert table[1].split()[:4] == [name, tenant.namespace, "custom", "Succeeded"]


def test_dependents_show_that_they_wait(tenant: Tenant) -> None:
    """52. the launcher shows `Init:0/1` while the worker starts; both Running afterwards; the host file."""
    slow = {"name": "slow", "image": IMAGE, "command": ["/bin/sh", "-c", CODE]}
    worker = role(CODE)
    cast("dict[str, Json]", worker["template"])["spec"]["initContainers"] = [slow]
    tenant.apply(job("mpi", "mpi", launcher=role(f"cat /etc/mpi/hostfile; {CODE}"), worker=worker))
    wait_for(lambda: shown(tenant).get("mpi-launcher-0") == "Init:0/1", lambda: str(shown(tenant)), 60)
    wait_for(lambda: shown(tenant)["mpi-worker-0"].startswith("Init:"), lambda: str(shown(tenant)), 60)
    wait_for(lambda: _runs(tenant, "mpi-worker-0", "slow"), lambda: str(shown(tenant)), 60)
    tenant.kubectl("exec", "mpi-worker-0", "-c", "slow", "--", "sh", "-c", "echo 0 > /tmp/code")
    until(tenant, "mpi", "Running")
    assert (shown(tenant)["mpi-launcher-0"], shown(tenant)["mpi-worker-0"]) == ("Running", "Running")
    ips = [_ip(tenant, name) for name in ("mpi-launcher-0", "mpi-worker-0")]
    assert tenant.said("mpi-launcher-0", "-c", "main").splitlines() == [f"{ip} slots=1" for ip in ips]
    end(tenant, "mpi-launcher-0", 0)
    until(tenant, "mpi", "Succeeded")
    assert shown(tenant)["mpi-worker-0"] == "Running", "cleanPodPolicy None keeps it"
    tenant.kubectl("delete", "aj", "mpi")


def _runs(tenant: Tenant, pod: str, container: str) -> bool:
    found = cast("dict[str, Json]", tenant.get("pod", pod))["status"]
    statuses = cast("list[Json]", found.get("initContainerStatuses", []))
    return any(one["name"] == container and "running" in cast("Json", one["state"]) for one in statuses)


def _ip(tenant: Tenant, pod: str) -> str:
    return str(cast("dict[str, Json]", tenant.get("pod", pod))["status"]["podIP"])


def test_a_poisonous_job_is_told_and_cured_while_another_runs(tenant: Tenant) -> None:
    """37 and 38: `worker: null` -> invalid; the operator serves another job meanwhile; an edit cures it."""
    # `kubectl apply` leaves out what is null.
    tenant.kubectl("create", "-f", "-", stdin=json.dumps(job("poison", worker=cast("Json", None))))
    tenant.apply(job("healthy", worker=role("true")))
    until(tenant, "healthy", "Succeeded")
    until(tenant, "poison", "Failed")
    failed = condition(tenant, "poison", "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "InvalidDefinition")
    assert failed["message"] == "spec.roleSpecs.worker: is null; write the role or take its name away"
    patch = json.dumps({"spec": {"roleSpecs": {"worker": role("true")}}})
    tenant.kubectl("patch", "aj", "poison", "--type=merge", "-p", patch)
    until(tenant, "poison", "Succeeded")
    failed = condition(tenant, "poison", "Failed")
    assert (failed["status"], failed["reason"]) == ("False", "DefinitionChanged")


@pytest.mark.long_on_cluster
def test_what_the_api_server_refuses_takes_away_what_was_made(tenant: Tenant) -> None:
    """26. pod template refused by the API (422) -> invalid, children already made are deleted."""
    bad = role("true")
    containers = cast("dict[str, dict[str, list[Json]]]", bad["template"])["spec"]["containers"]
    containers[0]["imagePullPolicy"] = "Sometimes"
    tenant.apply(job("refused", good=role("trap 'exit 0' TERM; sleep 600 & wait"), bad=bad))
    until(tenant, "refused", "Failed")
    failed = condition(tenant, "refused", "Failed")
    assert failed["reason"] == "InvalidDefinition"
    assert "imagePullPolicy" in failed["message"]
    wait_for(
        lambda: not any(pod.startswith("refused-") for pod in shown(tenant)), lambda: str(shown(tenant)), 60
    )


def test_exit_codes(tenant: Tenant) -> None:
    """14. exit 137 -> pod deleted and recreated, role not Failed; exit 1 -> pod kept, role Failed."""
    tenant.apply(job("codes", worker=role(CODE, restartPolicy="ExitCode")))
    until(tenant, "codes", "Running")
    change = ("patch", "aj", "codes", "--type=merge", "-p", '{"spec":{"frameworkType":"standalone"}}')
    assert (
        "the framework of a job that has started cannot be changed" in tenant.kubectl(*change, code=1).stderr
    )
    (first,) = (pod for pod in shown(tenant) if pod.startswith("codes-"))
    end(tenant, first, 137)
    wait_for(lambda: _replaced(tenant, first), lambda: str(shown(tenant)), 60)
    (second,) = (
        pod for pod, phase in shown(tenant).items() if pod.startswith("codes-") and phase == "Running"
    )
    assert first.startswith("codes-worker-0-")
    assert second != first
    end(tenant, second, 1)
    found = until(tenant, "codes", "Failed")
    roles = cast("dict[str, Json]", found["roleStatuses"])
    assert (roles["worker"]["reason"], roles["worker"]["restarts"]) == ("PodFailed", 1)
    assert shown(tenant)[second] == "Error"


def _replaced(tenant: Tenant, first: str) -> bool:
    there = {pod: phase for pod, phase in shown(tenant).items() if pod.startswith("codes-")}
    return first not in there and list(there.values()) == ["Running"]


def events(tenant: Tenant, name: str, reason: str) -> list[str]:
    """Messages of the job's events of this reason."""
    selector = f"involvedObject.name={name},involvedObject.kind=AresJob,reason={reason}"
    found = cast("list[Json]", tenant.get("events", "--field-selector", selector)["items"])
    return [str(one["message"]) for one in found]


def left(tenant: Tenant, kinds: str = "pods,services") -> str:
    """Names of what is there."""
    return tenant.kubectl("get", kinds, "-o", "name").stdout


def marks(tenant: Tenant, kind: str, name: str, part: str, key: str) -> str | None:
    metadata = cast("dict[str, dict[str, dict[str, str]]]", tenant.get(kind, name))["metadata"]
    return metadata.get(part, {}).get(key)


def test_pods_follow_the_annotations_of_their_job(tenant: Tenant) -> None:
    """41. Change, add and remove `ares.io/job-priority` on the job -> pods follow; unrelated keys
    untouched."""
    key = "ares.io/job-priority"
    tenant.apply(job("marked", worker=role(CODE)))
    until(tenant, "marked", "Running")
    tenant.kubectl("label", "pod", "marked-worker-0", "mine=1")
    places = (
        ("aj", "marked", "labels"),
        *(("pod", "marked-worker-0", part) for part in ("labels", "annotations")),
    )

    def followed(value: str | None) -> bool:
        return all(marks(tenant, *place, key) == value for place in places)

    for written, value in ((f"{key}=5", "5"), (f"{key}=7", "7"), (f"{key}-", None)):
        tenant.kubectl("annotate", "--overwrite", "aj", "marked", written)
        wait_for(partial(followed, value), lambda: tenant.kubectl("get", "pods", "-o", "yaml").stdout, 30)
    assert marks(tenant, "pod", "marked-worker-0", "labels", "mine") == "1"
    assert marks(tenant, "pod", "marked-worker-0", "labels", "ares.io/job-name") == "marked"
    tenant.kubectl("annotate", "aj", "marked", f"{key}=very high!")
    wait_for(lambda: events(tenant, "marked", "InvalidLabelValue"), "no event", 30)
    tenant.kubectl("delete", "aj", "marked", "--wait=false")


@pytest.mark.long_on_cluster
def test_a_running_job_grows_and_what_happens_is_told_once(tenant: Tenant) -> None:
    """15. Never, R2, Running, spec scaled to 3 -> pod of index 2 appears, role and job stay Running."""
    tenant.apply(job("told", worker=role(CODE, replicas=2)))
    until(tenant, "told", "Running")
    assert events(tenant, "told", "SuccessfulCreatePod") == ["told-worker-0 and told-worker-1"]
    assert events(tenant, "told", "SuccessfulCreateService") == ["told-worker"]
    size = json.dumps({"spec": {"roleSpecs": {"worker": {"replicas": 3}}}})
    tenant.kubectl("patch", "aj", "told", "--type=merge", "-p", size)
    wait_for(lambda: shown(tenant).get("told-worker-2") == "Running", lambda: str(shown(tenant)), 60)
    found = status(tenant, "told")
    assert found["phase"] == "Running", found
    assert len(events(tenant, "told", "StaleClusterSpec")) == 1
    end(tenant, "told-worker-1", 3)
    until(tenant, "told", "Failed")
    (failed,) = events(tenant, "told", "PodFailed")
    assert failed.startswith("role worker: pod=told-worker-1; nodeName="), failed
    info = json.loads(failed.partition("info=")[2])
    assert (info["exitCode"], info["reason"]) == (3, "Error")
    assert {"startedAt", "finishedAt", "containerID"} <= set(info)
    transitions = events(tenant, "told", "JobPhaseTransition")
    assert [one.partition(":")[0] for one in transitions if "Failed" in one] == ["Running -> Failed"]
    assert len(set(transitions)) == len(transitions)


@pytest.mark.long_on_cluster
def test_nothing_is_left_where_nothing_is_to_be_left(tenant: Tenant) -> None:
    """3.5: cleanPodPolicy All deletes all pods and role services; 43. ttlSecondsAfterFinished."""
    tidy = job("tidy", worker=role("true"))
    cast("Json", tidy["spec"])["runPolicy"] = {"cleanPodPolicy": "All"}
    brief = job("brief", worker=role("true"))
    cast("Json", brief["spec"])["runPolicy"] = {"ttlSecondsAfterFinished": 2}
    tenant.apply(tidy, brief)
    until(tenant, "tidy", "Succeeded")
    wait_for(lambda: "tidy-worker" not in left(tenant), lambda: left(tenant), 60)
    assert status(tenant, "tidy")["phase"] == "Succeeded"
    wait_for(lambda: "/brief" not in left(tenant, "aj"), lambda: left(tenant, "aj"), 60)
    assert len(events(tenant, "brief", "SuccessfulDeleteJob")) == 1


def test_suspended_and_back(tenant: Tenant) -> None:
    """46. suspend true on a running job -> no pods, phase Pending; false -> runs again."""
    tenant.apply(job("held", worker=role(CODE)))
    until(tenant, "held", "Running")
    for suspend, phase in ((True, "Pending"), (False, "Running")):
        patch = json.dumps({"spec": {"runPolicy": {"suspend": suspend}}})
        tenant.kubectl("patch", "aj", "held", "--type=merge", "-p", patch)
        until(tenant, "held", phase)
        wait_for(partial(_held, tenant, suspend), lambda: str(shown(tenant)), 60)
        assert condition(tenant, "held", "Suspended")["status"] == str(suspend)
    assert "/held-worker" in left(tenant, "services")
    tenant.kubectl("delete", "aj", "held", "--wait=false")


def _held(tenant: Tenant, suspend: bool) -> bool:
    return ("held-worker-0" in shown(tenant)) is not suspend


def test_a_job_is_deleted_with_all_that_it_has(tenant: Tenant) -> None:
    """44. Delete a job that has dependence (and one carrying `ares.io/ares-finalizer`) -> object, pods and
    services are gone."""
    waits = job("gone", a=role(CODE), b=role("true", dependence={"roleNames": ["a"]}))
    cast("Json", waits["metadata"])["finalizers"] = ["ares.io/ares-finalizer"]
    tenant.apply(waits)
    wait_for(lambda: "gone-b-0" in shown(tenant), lambda: str(shown(tenant)), 60)
    tenant.kubectl("delete", "aj", "gone", "--timeout=60s")
    wait_for(lambda: "/gone-" not in left(tenant), lambda: left(tenant), 90)


@pytest.mark.long_on_cluster
def test_a_name_that_somebody_else_has_is_waited_for(tenant: Tenant) -> None:
    """2.5: never adopted or deleted: wait (Warning NameConflict) and create when the name is free."""
    tenant.kubectl("create", "service", "clusterip", "taken-worker", "--tcp=80")
    tenant.apply(job("taken", worker=role("true")))
    wait_for(lambda: events(tenant, "taken", "NameConflict"), lambda: str(status(tenant, "taken")), 60)
    assert "taken-worker" in events(tenant, "taken", "NameConflict")[0]
    assert status(tenant, "taken")["phase"] in ("Pending", "Starting")
    tenant.kubectl("delete", "service", "taken-worker")
    until(tenant, "taken", "Succeeded")


@pytest.mark.long_on_cluster
def test_a_stub_for_tests(tenant: Tenant) -> None:
    """3.6: demo makes no pods or services, goes Pending -> Starting and stays."""
    tenant.apply(job("demo", "demo", worker=role("true")))
    until(tenant, "demo", "Starting")
    assert "/demo-" not in left(tenant)
    tenant.kubectl("delete", "aj", "demo", "--timeout=60s")
