"""Acceptance cases 44 and 51: the README's commands in `deploy/spot`, on an API server.

Nodes are objects without a kubelet, and VMs are those of the rehearsal cloud.
"""

import asyncio
import json
import os
import shlex
import signal
from pathlib import Path
from typing import cast

import pytest
import yaml

from argosy.kinds.crd import crd_for
from argosy.kinds.meta import Json
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.spot import REPLICA_LABEL
from argosy.local.gce.api import GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.server import GceServer, utc_now
from argosy.operator.apis.spot import NAME, NAMESPACE, SPOT
from scripts.stages import parse_options
from tests.conftest import make_namespace
from tests.support.clouds.strict_gce import StrictGate
from tests.support.commands import REPOSITORY
from tests.support.et_readme import Readme, clone_for_make, run_local
from tests.support.servers import Server
from tests.support.spot_cluster import NAME as NAME_OF_JOB
from tests.support.spot_cluster import bound_node
from tests.support.spot_instances import CREDENTIALS, JOIN
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


NODE = """
apiVersion: v1
kind: Node
metadata: {name: %s}
status:
  allocatable: {cpu: "8", memory: 16Gi, pods: "110", nvidia.com/gpu: "1"}
  conditions: [{type: Ready, status: "True", reason: KubeletReady}]
"""


@pytest.mark.long  # the operator as a process; its parts are quick in tests/dialects/spot and tests/operator
@pytest.mark.timeout(300)
async def test_51_44_run_buys_the_vms_of_the_readme_and_uses_free_nodes_instead(
    clone: Path, file_apiserver: Server
) -> None:
    gate = StrictGate()
    cloud = Cloud(utc_now, Latency(insert=0.2, boot=0.2, delete=0.2, notice=1))
    readme = SpotReadme(clone, file_apiserver.kubeconfig)
    make_namespace(file_apiserver, "default")
    await asyncio.to_thread(create_secrets, readme)
    async with GceServer(GceApi(cloud, gate)).serving() as url:
        await asyncio.to_thread(follow_readme, readme, f"--gce-endpoint {url} --instance-poll 1", cloud, gate)
    assert gate.violations == []


def create_secrets(readme: SpotReadme) -> None:
    """Create the two Secrets with the commands of the README."""
    readme.make("install")
    credentials = readme.folder / "key.json"
    credentials.write_bytes(CREDENTIALS)
    generic = ("create", "secret", "generic")
    readme.kubectl(*generic, "gcp-credentials", f"--from-file=credentials.json={credentials}")
    literals = (f"--from-literal={key}={value.decode()}" for key, value in JOIN.items())
    readme.kubectl(*generic, "kubeadm-join-token", *literals)


def follow_readme(readme: SpotReadme, options: str, cloud: Cloud, gate: StrictGate) -> None:
    """Apply its manifests, the job first, without nodes and then with two."""
    job, vm = str(EXAMPLES / "spotinstancejob.yaml"), str(EXAMPLES / "spotinstancevm.yaml")

    def log() -> str:
        return (readme.folder / "log").read_text()

    def names(kind: str) -> list[str]:
        return readme.kubectl("get", kind, "-o", "name").split()

    def condition(kind: str) -> str:
        return readme.field(f'.status.conditions[?(@.type=="{kind}")].reason', "spotinstancejob", NAME_OF_JOB)

    with run_local(readme, options):
        readme.kubectl("apply", "-f", job)
        wait_for(lambda: condition("Accepted") == "TemplateNotFound", log)
        assert gate.sent.inserts == []
        readme.kubectl("apply", "-f", vm)
        wait_for(lambda: len({str(each.body["name"]) for each in gate.sent.inserts}) == 2, log)
        for insert in gate.sent.inserts:
            assert (insert.project, insert.zone) == ("my-gcp-project", "us-central1-a")
            assert str(insert.body["machineType"]).endswith("/n1-standard-4")
            assert "nvidia-tesla-t4" in str(insert.body["guestAccelerators"])
        assert names("jobs") == []
        readme.kubectl("delete", "-f", job, "--timeout=60s")
        wait_for(lambda: not cloud.instances, log)
        assert names("provisionedinstances") == []

        for node in ("a", "b"):
            manifest = readme.folder / f"{node}.yaml"
            manifest.write_text(NODE % node)
            readme.kubectl("create", "-f", str(manifest))
            status = json.dumps({"status": yaml.safe_load(NODE % node)["status"]})
            readme.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", status)
            # The API server taints a new node as not ready; a controller would remove that.
            readme.kubectl("patch", "node", node, "--type=merge", "-p", '{"spec": {"taints": null}}')
        bought = len(gate.sent.inserts)
        readme.kubectl("apply", "-f", job)
        wait_for(lambda: len(names("jobs")) == 2, log)
        jobs = cast("list[Json]", readme.get("jobs")["items"])
        assert {bound_node(item) for item in jobs} == {"a", "b"}
        labels = [cast("Json", cast("Json", item["metadata"])["labels"]) for item in jobs]
        assert {item[REPLICA_LABEL] for item in labels} == {"0", "1"}
        assert (names("provisionedinstances"), len(gate.sent.inserts)) == ([], bought)
        readme.kubectl("delete", "-f", job, "--timeout=60s")
    assert "Traceback" not in log()


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


def test_make_test_calls_the_tests_of_this_api(clone: Path) -> None:
    command = SpotReadme(clone).make("--dry-run", "test").stdout.splitlines()[-1]
    options = parse_options(shlex.split(command.partition("scripts/test ")[2]))
    assert "tests/dialects/spot/" in options.paths
    assert options.stage == "unit"


def test_samples_of_the_readme_are_the_examples() -> None:
    for name in ("spotinstancejob.yaml", "spotinstancevm.yaml"):
        assert (SAMPLES / name).read_text() == (EXAMPLES / name).read_text()
