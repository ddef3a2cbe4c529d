"""Acceptance cases 49 to 52 as far as they need no node: commands of et-operator's README in `deploy/et`."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from argosy.kinds.meta import Json
from tests.conftest import make_namespace
from tests.support.et_readme import Readme, clone_for_make, run_local
from tests.support.servers import Server
from tests.support.waiting import wait_for

J, GROUP = "elastic-training", "kai.alibabacloud.com"
CRDS = [f"{plural}.{GROUP}" for plural in ("scaleins", "scaleouts", "trainingjobs")]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return clone_for_make(tmp_path)


def test_50_image_and_changed_settings_are_deployed_and_a_repetition_changes_nothing(
    clone: Path, own_apiserver: Server
) -> None:
    readme = Readme(clone, own_apiserver.kubeconfig)
    readme.edit(et={"createSshSecret": False}, resources={"limits": {"memory": "1Gi"}})
    readme.make("deploy", "IMG=x/y:z", "WAIT=0")
    assert readme.operator(".image") == "x/y:z"
    assert "--create-ssh-secret=false" in readme.operator(".args")
    assert "--helper-image=x/y:z" in readme.operator(".args")
    assert json.loads(readme.operator(".resources.limits")) == {"memory": "1Gi"}
    before = readme.versions()
    assert len(before) > 10
    readme.make("deploy", "IMG=x/y:z", "WAIT=0")
    assert readme.versions() == before
    readme.make("deploy", "WAIT=0")
    assert readme.operator(".image").startswith("argosy/argosy:"), "the image of config/values.yaml"


def test_namespace_of_config_values_is_that_of_a_local_operator(clone: Path) -> None:
    readme = Readme(clone)
    readme.edit(namespace="other")
    assert '--operator-namespace "other"' in readme.make("--dry-run", "run-local").stdout


@pytest.mark.long
def test_namespace_of_config_values_is_that_of_the_operator(clone: Path, own_apiserver: Server) -> None:
    readme = Readme(clone, own_apiserver.kubeconfig)
    readme.edit(namespace="other")
    nothing = "nothing is installed in namespace other by argosy install"
    assert nothing in readme.make("undeploy", code=2).stderr
    readme.make("deploy", "WAIT=0")
    assert readme.kubectl("get", "deployment", "-n", "other", "-o", "name") == "deployment.apps/et-operator\n"


def original_crd(plural: str, kind: str) -> Json:
    """Return a CRD as a manifest of et-operator has it, without most of its schema."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {**anything, "properties": {"spec": anything, "status": anything}}},
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    spec = {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]}
    metadata = {"name": f"{plural}.{GROUP}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.mark.parametrize("command", ["kubectl apply", pytest.param("make deploy", marks=pytest.mark.long)])
def test_crds_of_et_operator_are_upgraded_and_stored_jobs_stay(
    clone: Path, own_apiserver: Server, command: str, tmp_path: Path
) -> None:
    readme = Readme(clone, own_apiserver.kubeconfig)
    kinds = {"trainingjobs": "TrainingJob", "scaleins": "ScaleIn", "scaleouts": "ScaleOut"}
    file = tmp_path / "crds.yaml"
    file.write_text(yaml.safe_dump_all(original_crd(*names) for names in kinds.items()))
    readme.kubectl("create", "-f", str(file))
    readme.kubectl("wait", "--for=condition=Established", "crd", *CRDS, "--timeout=60s")
    readme.kubectl("create", "-f", "examples/training_job.yaml")
    uid = readme.field(".metadata.uid", "trainingjob", J)
    if command == "make deploy":
        readme.make("deploy", "WAIT=0")
    else:
        readme.kubectl("apply", "-f", "config/deploy.yaml")
    served = readme.field(".spec.versions[0].subresources.scale.specReplicasPath", "crd", CRDS[2])
    assert served == ".spec.etReplicaSpecs.worker.replicas"
    assert readme.field(".metadata.uid", "trainingjob", J) == uid


def operator_process(make: subprocess.Popen[bytes]) -> int:
    """Return the process id of the operator that was started by make."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == make.pid:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if b"argosy" in words and b"operator" in words:
                    return int(folder.name)
        except OSError:  # it has just ended
            continue
    raise AssertionError("no operator runs")


@pytest.fixture(scope="module")
def created(file_apiserver: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Readme, Server]:
    """A server of these tests on which the README's command has created everything in one pass."""
    readme = Readme(clone_for_make(tmp_path_factory.mktemp("created")), file_apiserver.kubeconfig)
    readme.kubectl("create", "-f", "config/deploy.yaml")
    return readme, file_apiserver


def test_49_one_command_creates_everything_in_one_pass(created: tuple[Readme, Server]) -> None:
    readme, _ = created
    assert readme.kubectl("get", "crd", "--no-headers").split()[::2] == CRDS
    assert readme.field(".spec.replicas", "deployment", "et-operator", "-n", "kube-ai") == "1"


@pytest.mark.long
def test_49_applying_the_manifest_again_changes_nothing(created: tuple[Readme, Server]) -> None:
    readme, _ = created
    readme.kubectl("apply", "-f", "config/deploy.yaml")
    again = readme.kubectl("apply", "-f", "config/deploy.yaml").splitlines()
    assert {line.rpartition(" ")[2] for line in again} == {"unchanged"}


def test_51_run_local_starts_jobs_and_gives_the_lease_back(created: tuple[Readme, Server]) -> None:
    readme, server = created
    make_namespace(server, "default")

    def holder() -> str:
        lease = ("lease", "et-operator", "-n", "kube-ai", "--ignore-not-found")
        return readme.field(".spec.holderIdentity", *lease)

    def log() -> str:
        return (readme.folder / "log").read_text()

    with run_local(readme) as first:
        wait_for(holder, log)
        readme.kubectl("apply", "-f", "examples/training_job.yaml")
        workers = [f"pod/{J}-worker-0", f"pod/{J}-worker-1"]
        wait_for(lambda: readme.kubectl("get", "po", "-o", "name").split() == workers, log)
        identity = holder()
        os.killpg(first.pid, signal.SIGINT)
        first.wait(60)
        assert "Traceback" not in log()
        assert holder() == "", "given back, so that another operator takes it at once"
    with run_local(readme) as second:
        wait_for(lambda: holder() not in ("", identity), log)
        os.kill(operator_process(second), signal.SIGINT)
        assert second.wait(60) == 0, "of the operator; after Ctrl-C make reports the interrupt itself"
        assert holder() == ""


def test_52_make_builds_a_wheel_and_renders_the_manifest(clone: Path) -> None:
    readme = Readme(clone)
    readme.edit(image={"repository": "x/y", "tag": "z"})
    readme.make()
    (wheel,) = (clone / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "image: x/y:z" in (readme.folder / "config" / "deploy.yaml").read_text()


def tools(folder: Path, *builders: str) -> str:
    """Return a PATH with what the Makefile needs, and with programs that print how they are called."""
    folder.mkdir()
    for name in ("make", "sh", "bash", "sed"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name in builders:
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (folder / name).chmod(0o755)
    return str(folder)


def test_52_without_a_builder_or_without_img_the_message_names_what_is_missing(
    clone: Path, tmp_path: Path
) -> None:
    bare = Readme(clone, path=tools(tmp_path / "bare"))
    builder = "no program to build images found; install docker, podman or buildah"
    for target in ("docker-build", "docker-push"):
        assert builder in bare.make(target, "IMG=x/y:z", code=2).stderr
        assert "IMG is not set" in bare.make(target, code=2).stderr


@pytest.mark.parametrize(
    ("installed", "want"),
    [
        (("docker", "podman", "buildah"), "docker"),
        (("podman", "buildah"), "podman"),
        (("buildah",), "buildah"),
    ],
)
def test_52_images_are_built_and_pushed_by_the_first_program_found(
    clone: Path, tmp_path: Path, installed: tuple[str, ...], want: str
) -> None:
    readme = Readme(clone, path=tools(tmp_path / "tools", *installed))
    readme.variables["IMG"] = "x/y:z"
    built = readme.make("docker-build").stdout.splitlines()
    assert built[-1] == f"{want} build -f ../../Containerfile -t x/y:z ../.."
    assert readme.make("docker-push").stdout.splitlines()[-1] == f"{want} push x/y:z"
