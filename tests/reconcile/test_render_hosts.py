"""Tests for launchers whose host files are kept current, compared with golden files.

`ARGOSY_WRITE_GOLDEN=1` writes the files again.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from argosy.frameworks.base import HostFolders, Injection
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Workload
from argosy.workload.plan import CreatePod
from tests.support.scale_simulator import elastic_job

GOLDEN = Path(__file__).with_name("golden")
HELPER = Helper(image="argosy/helper:1")
LOCAL_HELPER = replace(HELPER, mounts=("/home/me/venv",), user=None)
FOLDERS = HostFolders({"/etc/edl": "training-job-hostfile", "/job": "deepspeed-hostfile"})
WITH_CONFIG = replace(FOLDERS, config_folder="/etc/mpi", config_volume="training-job-config")


def launcher(template: dict[str, Any] | None = None) -> Workload:
    job = elastic_job()
    spec = template or {"containers": [{"name": "main", "image": "horovod"}, {"name": "log", "image": "log"}]}
    return replace(
        job, roles={**job.roles, "launcher": replace(job.roles["launcher"], template={"spec": spec})}
    )


def render(job: Workload, wanted: HostFolders, helper: Helper = HELPER) -> dict[str, Any]:
    context = RenderContext(helper, "https://argosy-operator.argosy-system.svc", "PEM")
    pods = PodRenderer(context, lambda uid: f"token-of-{uid}")
    rendered = pods.for_job(job, lambda *_: Injection(host_folders=wanted))
    return rendered.render(CreatePod("launcher", 0, 1, 0), "job-launcher")


def test_launcher_has_its_files_before_it_starts_and_a_sidecar_that_keeps_them_current() -> None:
    pod = json.loads(json.dumps(render(launcher(), WITH_CONFIG)))  # without shared parts
    written = yaml.safe_dump(pod, sort_keys=False)
    golden = GOLDEN / "a-launcher-whose-host-files-are-kept-current.yaml"
    if os.environ.get("ARGOSY_WRITE_GOLDEN"):
        golden.write_text(written)
    assert written == golden.read_text()


def containers(pod: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the init container and the sidecar."""
    init, sidecar = pod["spec"]["initContainers"]
    return init, sidecar


USERS = {
    "no user: the helper's own": ({}, {}, 65532),
    "root: the helper's own": ({"runAsUser": 0}, {}, 65532),
    "a user of the pod: the same user": ({"runAsUser": 1000}, {}, 1000),
    "a user of the container: the same user": ({"runAsUser": 1000}, {"runAsUser": 2000}, 2000),
    "an unknown user that is not root: the helper's own": ({"runAsNonRoot": True}, {}, 65532),
}


@pytest.mark.parametrize(("pod", "container", "user"), USERS.values(), ids=USERS)
def test_files_are_written_as_the_user_of_the_launcher(
    pod: dict[str, Any], container: dict[str, Any], user: int
) -> None:
    main = {"name": "main", "image": "x", "securityContext": container}
    job = launcher({"containers": [main], "securityContext": pod})
    for written in containers(render(job, FOLDERS)):
        assert written["securityContext"]["runAsUser"] == user
        assert written["securityContext"]["runAsNonRoot"] is True


def test_locally_the_helper_runs_as_the_user_of_the_control_plane() -> None:
    job = launcher({"containers": [{"name": "main", "image": "x"}], "securityContext": {"runAsUser": 1000}})
    pod = render(job, FOLDERS, LOCAL_HELPER)
    for written in containers(pod):
        assert "runAsUser" not in written["securityContext"]
        assert written["volumeMounts"][-1]["mountPath"] == "/home/me/venv"
    names = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert names == ["training-job-hostfile", "deepspeed-hostfile", "argosy-helper-0"]


def test_init_container_that_copies_the_files_does_not_get_the_token_of_the_job() -> None:
    wanted = replace(WITH_CONFIG, init_image="alpine:3.10", init_command=("sh", "-c", "cp"))
    init, sidecar = containers(render(launcher(), wanted))
    assert init["env"] == []
    assert "ARGOSY_TOKEN" in {variable["name"] for variable in sidecar["env"]}


def test_volume_that_the_launcher_mounts_at_such_a_path_is_written_instead() -> None:
    mount = {"name": "mine", "mountPath": "/job", "subPath": "a", "readOnly": True}
    main = {"name": "main", "image": "x", "volumeMounts": [mount]}
    pod = render(launcher({"containers": [main], "volumes": [{"name": "mine", "emptyDir": {}}]}), FOLDERS)
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        mount,
        {"name": "training-job-hostfile", "mountPath": "/etc/edl"},
    ]
    for written in containers(pod):
        assert {"name": "mine", "mountPath": "/job", "subPath": "a"} in written["volumeMounts"]
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["mine", "training-job-hostfile"]


def test_init_container_of_an_api_finds_the_config_map() -> None:
    wanted = replace(
        WITH_CONFIG,
        init_container="init-hostfile",
        init_image="alpine:3.10",
        init_command=("cp", "/etc/mpi/hostfile", "/etc/edl/hostfile"),
        init_resources={"limits": {"cpu": "100m"}},
    )
    init, sidecar = containers(render(launcher(), wanted))
    assert (init["name"], init["image"]) == ("init-hostfile", "alpine:3.10")
    assert init["command"] == ["cp", "/etc/mpi/hostfile", "/etc/edl/hostfile"]
    assert init["resources"] == {"limits": {"cpu": "100m"}}
    assert {"name": "training-job-config", "mountPath": "/etc/mpi"} in init["volumeMounts"]
    assert sidecar["image"] == "argosy/helper:1"
    assert "training-job-config" not in str(sidecar["volumeMounts"])
