"""Tests the acceptance cases of et-operator's specification that decisions alone can show, by number."""

from argosy.plan.actions import Exec, ExecResult
from tests.support.et_simulator import EtSimulator, done, example

J = "elastic-training"
W0, W1, W2, W3 = (f"{J}-worker-{index}" for index in range(4))
LAUNCHER = f"{J}-launcher"


def running(**fields: object) -> EtSimulator:
    job = EtSimulator(**fields)  # type: ignore[arg-type]  # tests name fields freely
    job.run(8)
    assert job.status.phase == "Running", job.status
    return job


def test_case_1_a_new_job_creates_secret_workers_and_services_in_one_pass() -> None:
    job = EtSimulator()
    job.reconcile()
    assert sorted(job.pods) == [W0, W1]
    assert ("Secret", J) in job.children
    assert ("Service", W0) in job.children
    assert ("Service", W1) in job.children
    assert not any(kind == "ConfigMap" for kind, _ in job.children)
    assert job.status.phase == "Created"
    assert job.condition_types() == ["Created", "WorkersCreated"]
    assert job.status.target_workers == [W0, W1]
    spec = job.bodies["Service", W0].body["spec"]
    assert isinstance(spec, dict)
    assert spec["clusterIP"] == "None"
    assert [port["port"] for port in spec["ports"]] == [22, 9009]


def test_case_2_the_launcher_is_created_when_all_workers_run() -> None:
    job = EtSimulator()
    job.pending = {W1}
    job.run(4)
    assert LAUNCHER not in job.pods
    job.pending = set()
    job.run(4)
    assert LAUNCHER in job.pods
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        assert (kind, LAUNCHER) in job.children
    assert job.condition_types()[:4] == ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated"]


def test_case_9_a_running_launcher_makes_the_job_running() -> None:
    job = running()
    assert job.phases == ["Created", "Running"]
    assert job.condition_types()[-1] == "Running"
    assert job.reasons().count("TrainingJobRunning") == 1


def test_case_25_a_scale_out_adds_workers_when_all_run() -> None:
    job = running()
    job.pending = {W3}
    job.scale(example("scale_out.yaml"), "out")
    job.run(4)
    assert job.status.phase == "Scaling"
    assert job.status.current_scaler == "ScaleOut:default/out"
    assert {W2, W3} <= set(job.pods)
    assert tuple(job.record.role("worker").listed) == (0, 1)
    job.pending = set()
    job.run(4)
    assert job.scalers["out"].status.phase == "ScaleSucceeded"
    assert job.status.phase == "Running"
    assert job.status.current_scaler == ""
    assert job.status.target_workers == [W0, W1, W2, W3]
    assert tuple(job.record.role("worker").listed) == (0, 1, 2, 3)


def test_case_31_a_scale_in_unlists_drains_and_deletes() -> None:
    attached = {W2}

    def answer(call: Exec) -> ExecResult:
        drains = call.key.startswith("drain/")
        return done(call, stdout="\n".join(attached).encode() if drains else b"")

    job = running(answer=answer)
    job.scale(example("scale_out.yaml"), "out", toAdd={"count": 1})
    job.run(8)
    job.scale(example("scale_in_count.yaml"), "in")
    job.run(8)
    status = job.scalers["in"].status
    assert status.to_delete_pods == [W2]  # type: ignore[union-attr]
    assert [item.type for item in status.conditions][-1] == "ScriptExecuted"
    assert tuple(job.record.role("worker").listed) == (0, 1)
    assert W2 in job.pods
    attached.clear()
    job.run(5)
    assert W2 not in job.pods
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert job.status.target_workers == [W0, W1]
