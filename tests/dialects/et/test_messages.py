import pytest

from argosy.dialects.et import messages

SCALER = "ScaleIn:ns/s"
TEXTS = {
    "created": (messages.created("j"), "TrainingJob j is created."),
    "workers created": (messages.workers_created("ns", "j"), "create trainingjob(ns/j) workers"),
    "workers ready": (messages.workers_ready("ns", "j", 2), "trainingjob(ns/j) all workers (2) are running"),
    "launcher created": (messages.launcher_created("ns", "j"), "create trainingjob(ns/j) launcher"),
    "running": (messages.running("ns", "j"), "job(ns/j) is running."),
    "succeeded": (messages.succeeded("ns", "j"), "job(ns/j) successfully completed."),
    "failed without an exit code": (messages.failed("ns", "j"), "job(ns/j) has failed"),
    "failed with an exit code": (
        messages.failed("ns", "j", 137),
        "job(ns/j) has failed: the launcher exited with code 137",
    ),
    "launcher missing": (messages.launcher_missing("j-launcher"), "launcher pod j-launcher is missing"),
    "suspended by the annotation": (
        messages.suspended_by_annotation("j"),
        "TrainingJob j is waiting resource timeout.",
    ),
    "worker lost": (
        messages.worker_lost("ns", "j", "j-worker-1", "Deleted"),
        "trainingjob(ns/j): worker j-worker-1 phase is Deleted.",
    ),
    "worker evicted": (
        messages.worker_evicted("ns", "j", "j-worker-1"),
        "trainingjob(ns/j): worker j-worker-1 are evicted.",
    ),
    "workers replaced": (
        messages.workers_replaced("ns", "j", ["j-worker-2", "j-worker-3"]),
        "trainingjob(ns/j): recreate workers [j-worker-2 j-worker-3] for failed workers",
    ),
    "many workers replaced: ten names": (
        messages.workers_replaced("ns", "j", [str(index) for index in range(12)]),
        "trainingjob(ns/j): recreate workers [0 1 2 3 4 5 6 7 8 9 and 2 more] for failed workers",
    ),
    "foreign object": (
        messages.not_managed_by("Pod", "j-worker-0", "j"),
        "Pod j-worker-0 exists and is not managed by TrainingJob j; delete it, or rename the job",
    ),
    "scaler bound": (
        messages.scaler_bound("ns", "s", "j"),
        "Scaling job ns/s created, match the training job j",
    ),
    "job of a scaler not found": (
        messages.job_not_found("ns", "j"),
        "there is no TrainingJob j in namespace ns",
    ),
    "scaler succeeded": (messages.scaling_succeeded(SCALER), "ScaleIn:ns/s has Succeeded"),
    "scaler succeeded after a drain timeout": (
        messages.scaling_succeeded(SCALER, drain_timed_out=True),
        "ScaleIn:ns/s has Succeeded (drain timeout)",
    ),
    "script executed": (
        messages.script_executed("ns", "j", SCALER),
        "trainingjob(ns/j): execute script on launcher for ScaleIn:ns/s",
    ),
    "selection failed": (
        messages.selection_failed(SCALER, "no such worker: a"),
        "ScaleIn:ns/s get to delete workers name failed, error: no such worker: a",
    ),
    "ScaleOut timed out": (
        messages.scaling_failed("ScaleOut", "ns", "s", "execution timeout: j-worker-2 not running"),
        "scaleout job ns/s execution timeout: j-worker-2 not running",
    ),
}


@pytest.mark.parametrize(("text", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_text(text: str, want: str) -> None:
    assert text == want
