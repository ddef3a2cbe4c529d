"""The acceptance cases of TrainingJobs that concern more than decisions: one story for each group of them."""

from collections.abc import Iterator
from typing import cast

import pytest

from tests.support import commands
from tests.support.elastic_jobs import ElasticUser, scaler, training_job
from tests.support.user import Json, User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long_on_cluster

UNTIL_TOUCHED = "until [ -e /own/end ]; do sleep 0.1; done"


@pytest.fixture
def et(user: User) -> Iterator[ElasticUser]:
    yield ElasticUser(user)
    user.kubectl("delete", "resourcequota", "--all")
    user.kubectl("delete", "trainingjob", "--all", "--wait=false")


def pod_quota(pods: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "pods"},
        "spec": {"hard": {"pods": str(pods)}},
    }


def limit_pods(et: ElasticUser, pods: int) -> None:
    """Set a quota, and wait until the API server enforces it."""
    et.apply(pod_quota(pods))

    def is_enforced() -> bool:
        hard = cast("Json", et.status("resourcequota", "pods").get("hard", {}))
        return hard.get("pods") == str(pods)

    wait_for(is_enforced)


def test_a_job_starts_as_soon_as_foreign_pods_and_quotas_allow_it(et: ElasticUser) -> None:
    """Cases 1 to 4, 6 and 9 to 12."""
    foreign: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "start-worker-0"},
        "spec": {
            "containers": [{"name": "c", "image": "none", "command": ["sleep", "1"]}],
            "schedulingGates": [{"name": "tests.invalid/never"}],
        },
    }
    et.apply(foreign)
    uid = et.uid("pod", "start-worker-0")
    limit_pods(et, 1)
    et.apply(training_job("start"))
    et.wait_for_event("start", "PodCreateFailed")
    status = et.status("trainingjob", "start")
    created = [item for item in cast("list[Json]", status["conditions"]) if item["type"] == "WorkersCreated"]
    assert (status["phase"], created[0]["status"]) == ("Created", "False")
    et.user.kubectl("delete", "resourcequota", "pods")
    et.wait_for_event("start", "NotManagedBy")
    assert et.uid("pod", "start-worker-0") == uid
    et.user.kubectl("delete", "pod", "start-worker-0", "--now")
    status = et.wait_for_phase("trainingjob", "start", "Running")
    assert status["targetWorkers"] == ["start-worker-0", "start-worker-1"]
    files = cast("dict[str, str]", et.user.get("configmap", "start-config")["data"])
    assert files["hostfile"] == "start-worker-0:1\nstart-worker-1:1\n"
    assert et.hosts("start") == ["start-worker-0", "start-worker-1"]
    command = "/etc/mpi/kubexec.sh start-worker-1 cat /etc/hostname"
    assert et.run_in("start-launcher", command).split() == ["start-worker-1"]
    refused = et.run_in("start-launcher", "/opt/kube/kubectl get secrets 2>&1 || true")
    assert "forbidden" in refused


def test_a_job_is_restarted_suspended_resumed_and_deleted(et: ElasticUser) -> None:
    """Cases 13, 16 and 18 to 20."""
    et.apply(training_job("fails", "exit 3", restartPolicy="OnFailure", backoffLimit=1))
    et.apply(training_job("ends", UNTIL_TOUCHED, ttlSecondsAfterFinished=1))
    et.wait_for_phase("trainingjob", "ends", "Running")
    et.user.kubectl("annotate", "trainingjob", "ends", "job-supervisor.kube-ai.io/job-suspended=true")
    et.wait_for_phase("trainingjob", "ends", "Suspended")
    et.wait_until_gone("pods,services", "-l", "training-job-name=ends")
    et.user.kubectl("annotate", "trainingjob", "ends", "job-supervisor.kube-ai.io/job-suspended-")
    et.wait_for_phase("trainingjob", "ends", "Running")
    et.run_in("ends-launcher", "touch /own/end")
    et.wait_until_gone("trainingjob", "ends")
    et.wait_until_gone("pods,services,configmaps,roles", "-l", "training-job-name=ends")
    status = et.wait_for_phase("trainingjob", "fails", "Failed")
    assert status["restartCount"] == 1
    et.wait_until_gone("pods,services", "-l", "training-job-name=fails,training-job-role=worker")
    assert et.uid("pod", "fails-launcher")


def test_lost_workers_and_launchers_are_replaced_with_the_current_host_list(et: ElasticUser) -> None:
    """Cases 17 and 22."""
    job = training_job(
        "loss",
        worker=f"{UNTIL_TOUCHED}; exit 137",
        launcher_fields={"restartPolicy": "Always"},
        worker_fields={"restartPolicy": "OnFailure"},
    )
    et.apply(job)
    et.wait_for_phase("trainingjob", "loss", "Running")
    launcher, survivor = et.uid("pod", "loss-launcher"), et.uid("pod", "loss-worker-0")
    et.run_in("loss-worker-1", "touch /own/end")
    et.wait_for_hosts("loss", "worker-0", "worker-2")
    assert et.status("trainingjob", "loss")["targetWorkers"] == ["loss-worker-0", "loss-worker-2"]
    assert (et.uid("pod", "loss-launcher"), et.uid("pod", "loss-worker-0")) == (launcher, survivor)
    et.user.kubectl("delete", "pod", "loss-launcher", "--now")
    et.wait_for_phase("trainingjob", "loss", "Running")
    wait_for(lambda: et.uid("pod", "loss-launcher") != launcher)
    et.user.kubectl("wait", "--for=condition=Ready", "pod/loss-launcher", "--timeout=60s")
    et.wait_for_hosts("loss", "worker-0", "worker-2")
    assert et.uid("pod", "loss-worker-0") == survivor


@pytest.mark.long
def test_a_scale_out_is_all_or_nothing_and_runs_its_script(et: ElasticUser) -> None:
    """Cases 27 to 30."""
    et.apply(training_job("grow", worker_fields={"maxReplicas": 5}))
    et.wait_for_phase("trainingjob", "grow", "Running")
    limit_pods(et, len(cast("list[Json]", et.user.get("pods")["items"])) + 1)
    failed = et.scale("ScaleOut", "late", "grow", "ScaleFailed", toAdd={"count": 2}, timeout=3)
    assert "execution timeout" in et.message(failed, "ScaleFailed")
    et.wait_for_workers("grow", "worker-0", "worker-1")
    assert et.hosts("grow") == ["grow-worker-0", "grow-worker-1"]
    et.apply(scaler("ScaleOut", "deleted", "grow", toAdd={"count": 2}))
    et.wait_for_phase("scaleout", "deleted", "Scaling")
    et.user.kubectl("delete", "scaleout", "deleted")
    et.wait_for_phase("trainingjob", "grow", "Running")
    et.wait_for_workers("grow", "worker-0", "worker-1")
    et.user.kubectl("delete", "resourcequota", "pods")
    et.scale("ScaleOut", "many", "grow", "ScaleFailed", toAdd={"count": 4})
    assert et.workers("grow") == ["grow-worker-0", "grow-worker-1"]
    script = 'echo "$A $1" >> /own/calls; [ "$(wc -l < /own/calls)" -ge 3 ]'
    et.run_in("grow-launcher", f"printf '%s\\n' '{script}' > /own/scale.sh; chmod +x /own/scale.sh")
    added = et.scale(
        "ScaleOut",
        "script",
        "grow",
        toAdd={"count": 2},
        script="/own/scale.sh",
        env=[{"name": "A", "value": 'it\'s "one"  value'}],
        backoffLimit=2,
    )
    pods = cast("list[str]", added["addPods"])
    want = 'it\'s "one"  value ' + ",".join(f"{pod}:1" for pod in pods)
    assert et.run_in("grow-launcher", "cat /own/calls").splitlines() == [want] * 3
    assert et.workers("grow") == ["grow-worker-0", "grow-worker-1", *pods]


@pytest.mark.long
def test_a_scale_in_removes_only_workers_that_are_not_used(et: ElasticUser) -> None:
    """Cases 31 to 36 and 38."""
    worker = "trap 'echo terminated; exit 0' TERM; echo started; while :; do sleep 0.1; done"
    et.apply(training_job("shrink", worker=worker, worker_fields={"replicas": 4, "minReplicas": 2}))
    et.wait_for_phase("trainingjob", "shrink", "Running")
    refused: dict[str, Json] = {
        "all": {"toDelete": {"count": 4}},
        "below-minimum": {"toDelete": {"count": 3}},
        "nothing": {},
        "both": {"toDelete": {"count": 1, "podNames": ["shrink-worker-1"]}},
        "unknown": {"toDelete": {"podNames": ["shrink-worker-10"]}},
    }
    for name, spec in refused.items():
        et.scale("ScaleIn", name, "shrink", "ScaleFailed", **spec)
    assert et.workers("shrink") == [f"shrink-worker-{index}" for index in range(4)]
    logs = commands.start(et.user.kubectl_command("logs", "-f", "shrink-worker-1"), et.user.environment)
    with logs:
        assert logs.stdout is not None
        assert logs.stdout.readline().strip() == "started"
        et.scale("ScaleIn", "named", "shrink", toDelete={"podNames": ["shrink-worker-1"]})
        assert logs.stdout.read().split() == ["terminated"]
    attached = ("exec", "shrink-launcher", "--", "/etc/mpi/kubexec.sh", "shrink-worker-3", "sleep 600")
    with commands.start(et.user.kubectl_command(*attached), et.user.environment):
        count = "grep -lsa '[k]ubexec.sh.shrink-worker-3' /proc/[0-9]*/cmdline | wc -l"
        wait_for(lambda: int(et.run_in("shrink-launcher", count)) > 0)
        et.scale("ScaleIn", "used", "shrink", toDelete={"count": 1}, timeout=3)
    et.wait_for_event("shrink", "DrainTimeout")
    et.wait_for_workers("shrink", "worker-0", "worker-2")
    assert et.hosts("shrink") == ["shrink-worker-0", "shrink-worker-2"]


@pytest.mark.long
def test_scalers_wait_for_their_job_and_for_each_other(et: ElasticUser) -> None:
    """Cases 39 to 43."""
    latest = "jsonpath={.status.conditions[-1:].type}{'\\n'}"
    watch = et.user.kubectl_command("get", "scalein", "less", "-w", "-o", latest)
    et.apply(scaler("ScaleOut", "more", "queue", toAdd={"count": 3}))
    wait_for(lambda: "WaitingForJob" in str(et.status("scaleout", "more")))
    et.apply(scaler("ScaleIn", "less", "queue", toDelete={"count": 4}))
    with commands.start(watch, et.user.environment) as shown:
        assert shown.stdout is not None
        et.apply(training_job("queue"))
        et.wait_for_phase("scalein", "less", "ScaleSucceeded")
        seen = [line.strip() for line in iter(shown.stdout.readline, "ScaleSucceeded\n")]
        shown.terminate()
    positions = [seen.index(step) for step in ("Created", "Scaling", "ScriptExecuted")]
    assert positions == sorted(positions), seen
    assert et.status("scaleout", "more")["addPods"] == [f"queue-worker-{index}" for index in (2, 3, 4)]
    et.wait_for_workers("queue", "worker-0")
    for replicas, want in ((3, ("worker-0", "worker-1", "worker-2")), (2, ("worker-0", "worker-1"))):
        et.user.kubectl("scale", "trainingjob/queue", f"--replicas={replicas}")
        et.wait_for_hosts("queue", *want)
        et.wait_for_workers("queue", *want)
    et.user.kubectl("delete", "trainingjob", "queue")
    et.wait_until_gone("scalein,scaleout")
