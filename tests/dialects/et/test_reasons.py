import pytest

from argosy.dialects.et.reasons import launcher_failed, scaling_ended

LAUNCHER = {
    "pod without a reason: TrainingJobFailed": ("", "TrainingJobFailed"),
    "evicted pod: TrainingJobEvicted": ("Evicted", "TrainingJobEvicted"),
    "pod with another reason: that reason": ("NodeLost", "NodeLost"),
}


@pytest.mark.parametrize(("pod_reason", "want"), LAUNCHER.values(), ids=LAUNCHER.keys())
def test_reason_of_a_failed_launcher(pod_reason: str, want: str) -> None:
    assert launcher_failed(pod_reason) == want


ENDS = {
    "ScaleIn that succeeded: ScalingInSucceeded": ("ScaleIn", True, "ScalingInSucceeded"),
    "ScaleIn that failed: ScalingInFailed": ("ScaleIn", False, "ScalingInFailed"),
    "ScaleOut that succeeded: ScalingOutSucceeded": ("ScaleOut", True, "ScalingOutSucceeded"),
    "ScaleOut that failed: ScalingOutFailed": ("ScaleOut", False, "ScalingOutFailed"),
}


@pytest.mark.parametrize(("kind", "succeeded", "want"), ENDS.values(), ids=ENDS.keys())
def test_reason_of_the_end_of_a_scaler(kind: str, succeeded: bool, want: str) -> None:
    assert scaling_ended(kind, succeeded=succeeded) == want
