"""Tests for pods that continue from images of processes."""

from typing import Any

from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.kinds.checkpoint_spec import CheckpointLevel
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.checkpoint_policy import CheckpointPolicy, ImageTarget
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.model import Role
from argosy.workload.plan import CreatePod
from argosy.workload.record import Record
from argosy.workload.save_acks import read_resumed
from tests.support.builders import workload
from tests.support.workloads import NOW

DIGEST = f"sha256:{'a' * 64}"
IMAGE = f"registry.example/team/train@{DIGEST}"
SAVED = SavedCheckpoint(0, DIGEST, NOW, level="Process", images={"main": IMAGE})
IMAGES = ImageTarget("registry.example", "team/train", "login")
POLICY = CheckpointPolicy("", level=CheckpointLevel.PROCESS, images=IMAGES)


def render(policy: CheckpointPolicy = POLICY, saved: SavedCheckpoint | None = SAVED) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "torch"}], "imagePullSecrets": [{"name": "other"}]},
    }
    job = replace(workload(Role("worker", 1, template)), checkpoint=policy)
    context = RenderContext(Helper("argosy/helper:1"), "https://argosy-operator.argosy-system.svc", "PEM")
    pods = PodRenderer(context, lambda uid: uid).for_job(job, lambda *_: Injection(), Record(saved=saved))
    rendered: dict[str, Any] = pods.render(CreatePod("worker", 0, 1, 1), "train-worker-0")
    return rendered


def test_pod_has_the_image_its_login_a_node_that_restores_and_says_so() -> None:
    pod = render()
    spec, metadata = pod["spec"], pod["metadata"]
    assert [container["image"] for container in spec["containers"]] == [IMAGE]
    assert spec["imagePullSecrets"] == [{"name": "other"}, {"name": "login"}]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    label = {"key": "training.dcnlab.com/restore-capability", "operator": "In", "values": ["image", "pod"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [label]}]}
    assert metadata["annotations"]["a"] == "b"
    assert metadata["annotations"]["argosy.dev/restored-containers"] == "main"
    assert read_resumed(metadata["annotations"]["argosy.dev/checkpoint-resumed"]) == 0


def test_pod_without_a_checkpoint_of_its_processes_is_as_written() -> None:
    by_program = SavedCheckpoint(7, DIGEST, NOW)
    for saved in (None, by_program):
        spec = render(saved=saved)["spec"]
        assert [container["image"] for container in spec["containers"]] == ["torch"]
        assert "affinity" not in spec
        assert spec["imagePullSecrets"] == [{"name": "other"}]


def test_program_that_knows_nothing_of_checkpoints_gets_nothing_for_them() -> None:
    spec = render(saved=None)["spec"]
    assert "initContainers" not in spec
    assert not any(v["name"].startswith("ARGOSY_CHECKPOINT") for v in spec["containers"][0].get("env", []))
    kept = render(replace(POLICY, uri="file:///a/ns/job", level=CheckpointLevel.AUTO), saved=None)["spec"]
    assert "initContainers" in kept, "with auto the program may save"
