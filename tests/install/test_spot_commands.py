"""Acceptance cases 44 and 51 as far as they need no node: the README's commands in `deploy/spot`."""

import os
import signal
from pathlib import Path
from typing import cast

import pytest
import yaml

from argosy.kinds.crd import crd_for
from argosy.kinds.meta import Json
from argosy.kinds.migration import CheckpointBackup
from argosy.operator.apis.spot import NAME, NAMESPACE, SPOT
from tests.conftest import make_namespace
from tests.support.commands import REPOSITORY
from tests.support.et_readme import Readme, clone_for_make, run_local
from tests.support.servers import Server
from tests.support.spot_jobs import EXAMPLES
from tests.support.waiting import wait_for

CRDS = {f"{kind.resource.plural}.{kind.resource.group}" for kind in SPOT.custom_resources}
SAMPLES = REPOSITORY / "deploy" / "spot" / "config" / "samples"


RESTORE = """
apiVersion: migration.dcnlab.com/v1
kind: CheckpointRestore
metadata: {name: again, namespace: default}
spec:
  backupRef: {name: missing}
  podName: restored
"""


class SpotReadme(Readme):
    """Runs commands in `deploy/spot`."""

    api, namespace, deployment = "spot", NAMESPACE, NAME
    run_target = "run"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return clone_for_make(tmp_path)


@pytest.mark.long  # the same operator, started by hand: tests/operator/test_spot_migration.py
def test_44_run_serves_the_kinds_after_install_and_gives_the_lease_back(
    clone: Path, file_apiserver: Server
) -> None:
    readme = SpotReadme(clone, file_apiserver.kubeconfig)
    make_namespace(file_apiserver, "default")
    readme.make("install")

    def holder() -> str:
        return readme.field(".spec.holderIdentity", "lease", NAME, "-n", NAMESPACE, "--ignore-not-found")

    def log() -> str:
        return (readme.folder / "log").read_text()

    with run_local(readme) as running:
        wait_for(holder, log)
        restore = clone / "restore.yaml"
        restore.write_text(RESTORE)
        readme.kubectl("apply", "-f", str(restore))
        path = ".status.conditions[0].reason"
        wait_for(lambda: readme.field(path, "checkpointrestore", "again") == "BackupNotFound", log)
        os.killpg(running.pid, signal.SIGINT)
        running.wait(60)
    assert "Traceback" not in log()
    assert holder() == "", "given back, so that another operator takes it at once"


def test_44_install_makes_crds_and_deploy_the_operator_and_again_nothing_changes(
    clone: Path, file_apiserver: Server
) -> None:
    readme = SpotReadme(clone, file_apiserver.kubeconfig)
    readme.make("install")
    assert set(readme.field(".items[*].metadata.name", "crds").split()) >= CRDS
    assert readme.kubectl("get", "deployments", "-A", "-o", "name") == ""
    readme.make("deploy", "IMG=x/y:z", "WAIT=0")
    assert readme.operator(".image") == "x/y:z"
    assert "--api=spot" in readme.operator(".args")
    before = readme.versions()
    assert len(before) > 10
    readme.make("install", "deploy", "IMG=x/y:z", "WAIT=0")
    assert readme.versions() == before
    for name in ("spotinstancejob.yaml", "spotinstancevm.yaml"):
        readme.kubectl("apply", "-f", str(EXAMPLES / name))
    for sample in SAMPLES.glob("*.yaml"):
        readme.kubectl("apply", "-f", str(sample))


def test_a_crd_of_the_migration_operator_is_left_as_it_is_without_force(
    clone: Path, file_apiserver: Server
) -> None:
    readme = SpotReadme(clone, file_apiserver.kubeconfig)
    crd = crd_for(CheckpointBackup)
    cast("Json", crd["metadata"]).pop("labels")
    manifest = clone / "crd.yaml"
    manifest.write_text(yaml.safe_dump(crd))
    name = f"{CheckpointBackup.resource.plural}.{CheckpointBackup.resource.group}"
    readme.kubectl("delete", "crd", name, "--ignore-not-found")
    readme.kubectl("create", "-f", str(manifest))
    assert f"CustomResourceDefinition {name} left as it is" in readme.make("install").stdout
    assert readme.field(".metadata.labels", "crd", name) == ""
    readme.run(str(REPOSITORY / ".venv/bin/argosy"), "install", "--api", "spot", "--crds-only", "--force")
    assert "argosy" in readme.field(".metadata.labels", "crd", name)


def test_51_without_a_builder_the_image_cannot_be_built(clone: Path) -> None:
    readme = SpotReadme(clone)
    failed = readme.make("docker-build", "docker-push", "IMG=x/y:z", "BUILDER=", code=2)
    assert "no program to build images found" in failed.stderr
    assert "IMG is not set" in readme.make("docker-build", code=2).stderr


def test_samples_of_the_readme_are_the_examples() -> None:
    for name in ("spotinstancejob.yaml", "spotinstancevm.yaml"):
        assert (SAMPLES / name).read_text() == (EXAMPLES / name).read_text()
