"""AresJobs managed with kubectl alone, on the local control plane and on a real cluster."""

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
"""Waits for a number in /tmp/code and exits with it."""


def status(user: User, name: str) -> Json:
    return cast("Json", user.get("aj", name).get("status", {}))


def wait_for_phase(user: User, name: str, *phases: str) -> Json:
    return user.wait_for_phase(name, *phases, kind="aj")


def condition(user: User, name: str, kind: str) -> dict[str, str]:
    observed = cast("list[dict[str, str]]", status(user, name).get("conditions", []))
    return next((entry for entry in observed if entry["type"] == kind), {})


def pod_statuses(user: User) -> dict[str, str]:
    """The column STATUS of `kubectl get pods`, by pod name."""
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


def end_pod(user: User, pod: str, code: int) -> None:
    script = f"echo {code} > /tmp/code.new; mv /tmp/code.new /tmp/code"
    done = user.kubectl("exec", pod, "--", "sh", "-c", script, code=None)
    assert done.returncode in (0, 137), done.stderr  # the end of the pod may kill the command that ended it


@pytest.mark.long_on_cluster
def test_first_example_succeeds_and_its_defaults_are_stored(user: User) -> None:
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


def test_dependent_pod_shows_init_0_1_until_its_dependency_runs(user: User) -> None:
    """52. the launcher shows `Init:0/1` while the worker starts; both Running afterwards; the host file."""
    slow = {"name": "slow", "image": IMAGE, "command": ["/bin/sh", "-c", CODE]}
    worker = role(CODE)
    cast("dict[str, Json]", worker["template"])["spec"]["initContainers"] = [slow]
    user.apply(job("mpi", "mpi", launcher=role(f"cat /etc/mpi/hostfile; {CODE}"), worker=worker))
    wait_for(
        lambda: pod_statuses(user).get("mpi-launcher-0") == "Init:0/1", lambda: str(pod_statuses(user)), 60
    )
    wait_for(
        lambda: pod_statuses(user)["mpi-worker-0"].startswith("Init:"), lambda: str(pod_statuses(user)), 60
    )
    wait_for(lambda: _init_container_runs(user, "mpi-worker-0", "slow"), lambda: str(pod_statuses(user)), 60)
    user.kubectl("exec", "mpi-worker-0", "-c", "slow", "--", "sh", "-c", "echo 0 > /tmp/code")
    wait_for_phase(user, "mpi", "Running")
    assert (pod_statuses(user)["mpi-launcher-0"], pod_statuses(user)["mpi-worker-0"]) == (
        "Running",
        "Running",
    )
    ips = [_ip(user, name) for name in ("mpi-launcher-0", "mpi-worker-0")]
    assert user.logs("mpi-launcher-0", "-c", "main").splitlines() == [f"{ip} slots=1" for ip in ips]
    end_pod(user, "mpi-launcher-0", 0)
    wait_for_phase(user, "mpi", "Succeeded")
    assert pod_statuses(user)["mpi-worker-0"] == "Running", "cleanPodPolicy None keeps it"
    user.kubectl("delete", "aj", "mpi")


def _init_container_runs(user: User, pod: str, container: str) -> bool:
    observed = cast("dict[str, Json]", user.get("pod", pod))["status"]
    statuses = cast("list[Json]", observed.get("initContainerStatuses", []))
    return any(entry["name"] == container and "running" in cast("Json", entry["state"]) for entry in statuses)


def _ip(user: User, pod: str) -> str:
    return str(cast("dict[str, Json]", user.get("pod", pod))["status"]["podIP"])


@pytest.mark.long_on_cluster
def test_invalid_job_is_reported_and_runs_after_an_edit_while_another_job_runs(user: User) -> None:
    """37 and 38: `worker: null` -> invalid; the operator serves another job meanwhile; an edit cures it."""
    # `kubectl apply` would drop null values.
    user.kubectl("create", "-f", "-", stdin=json.dumps(job("invalid", worker=cast("Json", None))))
    user.apply(job("healthy", worker=role("true")))
    wait_for_phase(user, "healthy", "Succeeded")
    wait_for_phase(user, "invalid", "Failed")
    failed = condition(user, "invalid", "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "InvalidDefinition")
    assert failed["message"] == "spec.roleSpecs.worker: must not be null; define the role or remove its name"
    patch = json.dumps({"spec": {"roleSpecs": {"worker": role("true")}}})
    user.kubectl("patch", "aj", "invalid", "--type=merge", "-p", patch)
    wait_for_phase(user, "invalid", "Succeeded")
    failed = condition(user, "invalid", "Failed")
    assert (failed["status"], failed["reason"]) == ("False", "DefinitionChanged")


@pytest.mark.long_on_cluster
def test_template_rejected_by_the_api_server_fails_the_job_and_deletes_its_children(user: User) -> None:
    """26. pod template rejected by the API server (422) -> invalid, existing children are deleted."""
    bad = role("true")
    containers = cast("dict[str, dict[str, list[Json]]]", bad["template"])["spec"]["containers"]
    containers[0]["imagePullPolicy"] = "Sometimes"
    user.apply(job("refused", good=role("trap 'exit 0' TERM; sleep 600 & wait"), bad=bad))
    wait_for_phase(user, "refused", "Failed")
    failed = condition(user, "refused", "Failed")
    assert failed["reason"] == "InvalidDefinition"
    assert "imagePullPolicy" in failed["message"]
    wait_for(
        lambda: not any(pod.startswith("refused-") for pod in pod_statuses(user)),
        lambda: str(pod_statuses(user)),
        60,
    )


def test_restart_policy_exit_code_replaces_a_pod_after_137_and_fails_after_1(user: User) -> None:
    """14. exit 137 -> pod deleted and recreated, role not Failed; exit 1 -> pod kept, role Failed."""
    user.apply(job("codes", worker=role(CODE, restartPolicy="ExitCode")))
    wait_for_phase(user, "codes", "Running")
    change = ("patch", "aj", "codes", "--type=merge", "-p", '{"spec":{"frameworkType":"standalone"}}')
    assert "the framework cannot be changed after the job has started" in user.kubectl(*change, code=1).stderr
    (first,) = (pod for pod in pod_statuses(user) if pod.startswith("codes-"))
    end_pod(user, first, 137)
    wait_for(lambda: _replaced(user, first), lambda: str(pod_statuses(user)), 60)
    (second,) = (
        pod for pod, phase in pod_statuses(user).items() if pod.startswith("codes-") and phase == "Running"
    )
    assert first.startswith("codes-worker-0-")
    assert second != first
    end_pod(user, second, 1)
    observed = wait_for_phase(user, "codes", "Failed")
    roles = cast("dict[str, Json]", observed["roleStatuses"])
    assert (roles["worker"]["reason"], roles["worker"]["restarts"]) == ("PodFailed", 1)
    assert pod_statuses(user)[second] == "Error"


def _replaced(user: User, first: str) -> bool:
    remaining = {pod: phase for pod, phase in pod_statuses(user).items() if pod.startswith("codes-")}
    return first not in remaining and list(remaining.values()) == ["Running"]


def events(user: User, name: str, reason: str) -> list[str]:
    """Messages of the job's events of this reason."""
    selector = f"involvedObject.name={name},involvedObject.kind=AresJob,reason={reason}"
    observed = cast("list[Json]", user.get("events", "--field-selector", selector)["items"])
    return [str(entry["message"]) for entry in observed]


def names_of(user: User, kinds: str = "pods,services") -> str:
    """The names of all objects of these kinds in the namespace."""
    return user.kubectl("get", kinds, "-o", "name").stdout


def metadata_value(user: User, kind: str, name: str, part: str, key: str) -> str | None:
    metadata = cast("dict[str, dict[str, dict[str, str]]]", user.get(kind, name))["metadata"]
    return metadata.get(part, {}).get(key)


def test_changes_of_job_annotations_are_propagated_to_pods(user: User) -> None:
    """41. Change, add and remove `ares.io/job-priority` on the job -> pods follow; unrelated keys
    untouched."""
    key = "ares.io/job-priority"
    user.apply(job("marked", worker=role(CODE)))
    wait_for_phase(user, "marked", "Running")
    user.kubectl("label", "pod", "marked-worker-0", "mine=1")
    places = (
        ("aj", "marked", "labels"),
        *(("pod", "marked-worker-0", part) for part in ("labels", "annotations")),
    )

    def propagated(value: str | None) -> bool:
        return all(metadata_value(user, *place, key) == value for place in places)

    for written, value in ((f"{key}=5", "5"), (f"{key}=7", "7"), (f"{key}-", None)):
        user.kubectl("annotate", "--overwrite", "aj", "marked", written)
        wait_for(partial(propagated, value), lambda: user.kubectl("get", "pods", "-o", "yaml").stdout, 30)
    assert metadata_value(user, "pod", "marked-worker-0", "labels", "mine") == "1"
    assert metadata_value(user, "pod", "marked-worker-0", "labels", "ares.io/job-name") == "marked"
    user.kubectl("annotate", "aj", "marked", f"{key}=very high!")
    wait_for(lambda: events(user, "marked", "InvalidLabelValue"), "no event", 30)
    user.kubectl("delete", "aj", "marked", "--wait=false")


@pytest.mark.long_on_cluster
def test_scaled_up_job_stays_running_and_each_event_is_emitted_once(user: User) -> None:
    """15. Never, R2, Running, spec scaled to 3 -> pod of index 2 appears, role and job stay Running."""
    user.apply(job("scaled", worker=role(CODE, replicas=2)))
    wait_for_phase(user, "scaled", "Running")
    assert events(user, "scaled", "SuccessfulCreatePod") == ["scaled-worker-0 and scaled-worker-1"]
    assert events(user, "scaled", "SuccessfulCreateService") == ["scaled-worker"]
    size = json.dumps({"spec": {"roleSpecs": {"worker": {"replicas": 3}}}})
    user.kubectl("patch", "aj", "scaled", "--type=merge", "-p", size)
    wait_for(
        lambda: pod_statuses(user).get("scaled-worker-2") == "Running", lambda: str(pod_statuses(user)), 60
    )
    observed = status(user, "scaled")
    assert observed["phase"] == "Running", observed
    assert len(events(user, "scaled", "StaleClusterSpec")) == 1
    end_pod(user, "scaled-worker-1", 3)
    wait_for_phase(user, "scaled", "Failed")
    (failed,) = events(user, "scaled", "PodFailed")
    assert failed.startswith("role worker: pod=scaled-worker-1; nodeName="), failed
    info = json.loads(failed.partition("info=")[2])
    assert (info["exitCode"], info["reason"]) == (3, "Error")
    assert {"startedAt", "finishedAt", "containerID"} <= set(info)
    transitions = events(user, "scaled", "JobPhaseTransition")
    assert [entry.partition(":")[0] for entry in transitions if "Failed" in entry] == ["Running -> Failed"]
    assert len(set(transitions)) == len(transitions)


@pytest.mark.long_on_cluster
def test_clean_pod_policy_all_deletes_pods_and_a_ttl_deletes_the_job(user: User) -> None:
    """3.5: cleanPodPolicy All deletes all pods and role services; 43. ttlSecondsAfterFinished."""
    tidy = job("tidy", worker=role("true"))
    cast("Json", tidy["spec"])["runPolicy"] = {"cleanPodPolicy": "All"}
    brief = job("brief", worker=role("true"))
    cast("Json", brief["spec"])["runPolicy"] = {"ttlSecondsAfterFinished": 2}
    user.apply(tidy, brief)
    wait_for_phase(user, "tidy", "Succeeded")
    wait_for(lambda: "tidy-worker" not in names_of(user), lambda: names_of(user), 60)
    assert status(user, "tidy")["phase"] == "Succeeded"
    wait_for(lambda: "/brief" not in names_of(user, "aj"), lambda: names_of(user, "aj"), 60)
    assert len(events(user, "brief", "SuccessfulDeleteJob")) == 1


@pytest.mark.long_on_cluster
def test_suspended_job_has_no_pods_and_resumes(user: User) -> None:
    """46. suspend true on a running job -> no pods, phase Pending; false -> runs again."""
    user.apply(job("held", worker=role(CODE)))
    wait_for_phase(user, "held", "Running")
    for suspend, phase in ((True, "Pending"), (False, "Running")):
        patch = json.dumps({"spec": {"runPolicy": {"suspend": suspend}}})
        user.kubectl("patch", "aj", "held", "--type=merge", "-p", patch)
        wait_for_phase(user, "held", phase)
        wait_for(partial(_has_pod_unless_suspended, user, suspend), lambda: str(pod_statuses(user)), 60)
        assert condition(user, "held", "Suspended")["status"] == str(suspend)
    assert "/held-worker" in names_of(user, "services")
    user.kubectl("delete", "aj", "held", "--wait=false")


def _has_pod_unless_suspended(user: User, suspend: bool) -> bool:
    return ("held-worker-0" in pod_statuses(user)) is not suspend


@pytest.mark.long_on_cluster
def test_deleted_job_with_dependencies_and_a_finalizer_leaves_nothing_behind(user: User) -> None:
    """44. Delete a job that has dependence (and one carrying `ares.io/ares-finalizer`) -> object, pods and
    services are gone."""
    waits = job("gone", a=role(CODE), b=role("true", dependence={"roleNames": ["a"]}))
    cast("Json", waits["metadata"])["finalizers"] = ["ares.io/ares-finalizer"]
    user.apply(waits)
    wait_for(lambda: "gone-b-0" in pod_statuses(user), lambda: str(pod_statuses(user)), 60)
    user.kubectl("delete", "aj", "gone", "--timeout=60s")
    wait_for(lambda: "/gone-" not in names_of(user), lambda: names_of(user), 90)


@pytest.mark.long_on_cluster
def test_job_waits_until_the_name_of_its_service_is_free(user: User) -> None:
    """2.5: never adopted or deleted: wait (Warning NameConflict) and create when the name is free."""
    user.kubectl("create", "service", "clusterip", "taken-worker", "--tcp=80")
    user.apply(job("taken", worker=role("true")))
    wait_for(lambda: events(user, "taken", "NameConflict"), lambda: str(status(user, "taken")), 60)
    assert "taken-worker" in events(user, "taken", "NameConflict")[0]
    assert status(user, "taken")["phase"] in ("Pending", "Starting")
    user.kubectl("delete", "service", "taken-worker")
    wait_for_phase(user, "taken", "Succeeded")


@pytest.mark.long_on_cluster
def test_framework_demo_creates_no_objects_and_stays_starting(user: User) -> None:
    """3.6: demo makes no pods or services, goes Pending -> Starting and stays."""
    user.apply(job("demo", "demo", worker=role("true")))
    wait_for_phase(user, "demo", "Starting")
    assert "/demo-" not in names_of(user)
    user.kubectl("delete", "aj", "demo", "--timeout=60s")
