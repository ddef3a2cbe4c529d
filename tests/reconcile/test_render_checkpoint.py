"""Tests for the pods of jobs with checkpoints, one of them compared with a golden file.

`ARGOSY_WRITE_GOLDEN=1` writes the file again.
"""

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from msgspec.structs import replace

from argosy.frameworks.base import Injection
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.model import Role
from argosy.workload.plan import CreatePod
from tests.support.builders import workload

GOLDEN = Path(__file__).with_name("golden") / "a-worker-with-checkpoints.yaml"
POLICY = CheckpointPolicy("pvc://models/team/a/ns/mnist-12345678", interval=600.0)


def render(
    policy: CheckpointPolicy = POLICY,
    spec: dict[str, Any] | None = None,
    attempt: int = 1,
    replacement: int = 0,
) -> dict[str, Any]:
    template = {"spec": spec or {"containers": [{"name": "main", "image": "torch"}]}}
    job = replace(workload(Role("worker", 2, template)), checkpoint=policy)
    context = RenderContext(Helper("argosy/helper:1"), "https://argosy-operator.argosy-system.svc", "PEM")
    pods = PodRenderer(context, lambda uid: f"token-of-{uid}").for_job(job, lambda *_: Injection())
    body = pods.render(CreatePod("worker", 1, attempt, replacement), "mnist-worker-1")
    rendered: dict[str, Any] = json.loads(json.dumps(body))  # without shared parts
    return rendered


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def main(pod: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["spec"]["containers"][0]
    return container


def test_pod_has_its_folders_and_variables_and_a_sidecar() -> None:
    written = yaml.safe_dump(render(), sort_keys=False)
    if os.environ.get("ARGOSY_WRITE_GOLDEN"):
        GOLDEN.write_text(written)
    assert written == GOLDEN.read_text()


STORES = {
    "claim: the job's folder in it": (
        "pvc://models/ns/mnist-1",
        {"persistentVolumeClaim": {"claimName": "models"}},
        "ns/mnist-1",
    ),
    "folder of the node: created if it does not exist": (
        "file:///data/runs/ns/mnist-1",
        {"hostPath": {"path": "/data/runs", "type": "DirectoryOrCreate"}},
        "ns/mnist-1",
    ),
}


@pytest.mark.parametrize(("uri", "volume", "path"), STORES.values(), ids=STORES.keys())
def test_program_and_helpers_mount_only_the_folder_of_the_job(
    uri: str, volume: dict[str, Any], path: str
) -> None:
    pod = render(replace(POLICY, uri=uri))
    assert {"name": "argosy-checkpoints", **volume} in pod["spec"]["volumes"]
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "argosy-checkpoints"]
        assert mount["subPath"] == path


def test_a_copy_has_a_folder_of_its_own_and_may_read_those_of_all_copies() -> None:
    policy = replace(POLICY, uri="file:///data/ns/mnist-1", copy="replica-1")
    job = replace(workload(Role("worker", 1, {})), checkpoint=policy)
    context = RenderContext(Helper("argosy/helper:1"), "https://operator", "PEM")
    env = [{"name": "ARGOSY_RESUME", "value": "0"}, {"name": "PYTHONPATH", "value": "/lib"}]
    spec = {
        "containers": [{"name": "main", "image": "x", "env": env}],
        "initContainers": [{"name": "prepare", "image": "y"}],
        "restartPolicy": "Never",
    }
    pods = PodRenderer(context, lambda uid: f"token-of-{uid}")
    pod = pods.with_checkpoint(spec, job, CreatePod("replica-1", 0, 1, 2))
    init, sidecar, prepare = cast("list[dict[str, Any]]", pod["initContainers"])
    [program] = cast("list[dict[str, Any]]", pod["containers"])
    assert (pod["restartPolicy"], prepare["name"], sidecar["restartPolicy"]) == ("Never", "prepare", "Always")
    for container in (init, sidecar, program):
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        assert mounts["/argosy/checkpoints"]["subPath"] == "ns/mnist-1/replica-1"
        copies = mounts["/argosy/copies"]
        assert (copies["subPath"], copies["readOnly"]) == ("ns/mnist-1", True)
    assert init["command"][-4:] == ["--copies", "/argosy/copies", "--link", "/run/argosy/resume/checkpoint"]
    found = variables(sidecar)
    assert (found["ARGOSY_ROLE"], found["ARGOSY_INDEX"]) == ("replica-1", "0"), (
        "each copy is a role of one pod"
    )
    assert found["ARGOSY_TOKEN"] == f"token-of-{job.uid}"
    assert variables(program)["ARGOSY_RESUME"] == "0", "a variable that the container has is kept"
    assert variables(program)["ARGOSY_INCARNATION"] == "2"
    assert variables(program)["PYTHONPATH"] == "/run/argosy/sdk:$(ARGOSY_USER_PYTHONPATH)"


RESUMES = {
    "first pod of a replica: not a resumption": (1, 0, "0"),
    "replacement: a resumption": (1, 2, "1"),
    "later attempt: a resumption": (3, 0, "1"),
}


@pytest.mark.parametrize(("attempt", "replacement", "want"), RESUMES.values(), ids=RESUMES.keys())
def test_program_knows_whether_it_resumes(attempt: int, replacement: int, want: str) -> None:
    found = variables(main(render(attempt=attempt, replacement=replacement)))
    assert found["ARGOSY_RESUME"] == want
    assert (found["ARGOSY_ATTEMPT"], found["ARGOSY_INCARNATION"]) == (str(attempt), str(replacement))


def test_python_path_of_the_template_is_kept_behind_ours() -> None:
    env = [{"name": "A", "value": "/a"}, {"name": "PYTHONPATH", "value": "$(A)/lib"}]
    container = main(render(spec={"containers": [{"name": "main", "image": "x", "env": env}]}))
    names = [variable["name"] for variable in container["env"]]
    assert names[-3:] == ["A", "ARGOSY_USER_PYTHONPATH", "PYTHONPATH"], "each refers to earlier ones only"
    assert variables(container)["PYTHONPATH"] == "/run/argosy/sdk:$(ARGOSY_USER_PYTHONPATH)"
    assert variables(container)["ARGOSY_USER_PYTHONPATH"] == "$(A)/lib"


def test_interval_is_absent_if_only_losses_count() -> None:
    assert "ARGOSY_CHECKPOINT_INTERVAL" not in variables(main(render(replace(POLICY, interval=None))))


def test_programs_are_signalled_only_where_the_sidecar_sees_their_processes() -> None:
    containers = [{"name": "main", "image": "x"}]
    shared = render(spec={"containers": containers, "shareProcessNamespace": True})
    assert variables(shared["spec"]["initContainers"][1])["ARGOSY_SHARED_PROCESSES"] == "1"
    assert "ARGOSY_SHARED_PROCESSES" not in variables(render()["spec"]["initContainers"][1])


def test_sidecar_runs_as_the_user_of_the_program_and_may_delete_its_files() -> None:
    security = {"runAsUser": 1000}
    pod = render(spec={"containers": [{"name": "main", "image": "x"}], "securityContext": security})
    for helper in pod["spec"]["initContainers"]:
        assert helper["securityContext"]["runAsUser"] == 1000


@pytest.mark.parametrize("uri", ["s3://models/ns/mnist-1", "oci://registry.example/models/ns/mnist-1"])
def test_only_our_containers_have_the_credentials_of_an_object_store(uri: str) -> None:
    pod = render(replace(POLICY, uri=uri, credentials="bucket"))
    assert {"name": "argosy-store-credentials", "secret": {"secretName": "bucket"}} in pod["spec"]["volumes"]
    assert {"name": "argosy-checkpoints", "emptyDir": {}} in pod["spec"]["volumes"]
    init, sidecar = pod["spec"]["initContainers"]
    for container, arguments in ((init, ["resume", "--sdk", "/run/argosy/sdk"]), (sidecar, ["orders"])):
        command = ["python3", "-m", "argosy.checkpoint.sidecar", *arguments]
        assert container["command"][: len(command)] == command
        assert variables(container)["ARGOSY_CHECKPOINT_URI"] == uri
        assert "argosy-store-credentials" in [mount["name"] for mount in container["volumeMounts"]]
    assert "argosy-store-credentials" not in [mount["name"] for mount in main(pod)["volumeMounts"]]
    assert variables(main(pod))["ARGOSY_CHECKPOINT_SHARED"] == "0"


def test_object_store_without_credentials_uses_the_identity_of_the_pod() -> None:
    pod = render(replace(POLICY, uri="gs://models/ns/mnist-1"))
    assert "ARGOSY_STORE_CREDENTIALS" not in variables(pod["spec"]["initContainers"][1])
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["argosy-checkpoints", "argosy-run"]
