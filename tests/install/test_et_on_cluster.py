"""Acceptance cases 49 to 51: the commands of et-operator's README in `deploy/et`, on a real cluster.

Tests run in the order of the file; each continues with the cluster as the previous one left it.
"""

import json
import os
import signal
from collections.abc import Iterator
from typing import cast

import pytest
import yaml

from argosy.kinds.meta import Json
from tests.support import trainingjobs
from tests.support.cluster import images
from tests.support.cluster.running import RunningCluster
from tests.support.et_readme import Readme, clone_for_make, run_local
from tests.support.waiting import retry_until, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.sequential, pytest.mark.root, pytest.mark.timeout(300)]

J = "elastic-training"
GPU = "nvidia.com/gpu"
POLLING = "while :; do echo $(/etc/edl/discover_hosts.sh); sleep 0.5; done"
"""Takes the place of horovodrun: it reads the host list again and again."""
LISTENING = "trap 'exit 0' TERM; python3 -m http.server 22 & wait"
"""Takes the place of sshd: something listens at its port."""


@pytest.fixture(scope="module")
def readme(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readme]:
    clone = clone_for_make(tmp_path_factory.mktemp("readme"))
    readme = Readme(clone, cluster.server.kubeconfig)
    for node in readme.kubectl("get", "nodes", "-o", "name").split():
        patch = json.dumps({"status": {"capacity": {GPU: "8"}}})
        readme.kubectl("patch", node, "--subresource=status", "-p", patch)
    yield readme
    cluster.kubectl("delete", "trainingjob", "--all", "--timeout=60s", code=None)
    manifest = str(readme.folder / "config" / "deploy.yaml")
    cluster.kubectl("delete", "--ignore-not-found", "-f", manifest, "--timeout=120s", code=None, timeout=150)


def rows(readme: Readme, *words: str) -> list[list[str]]:
    """Return the lines of `kubectl get`, without the age."""
    return [line.split()[:-1] for line in readme.kubectl("get", *words, "--no-headers").splitlines()]


def pods(readme: Readme) -> dict[str, tuple[object, object]]:
    """Return uid and restarts of the job's pods."""
    found: dict[str, tuple[object, object]] = {}
    for pod in cast("list[dict[str, Json]]", readme.get("po", "-l", f"training-job-name={J}")["items"]):
        containers = cast("list[Json]", pod["status"]["containerStatuses"])
        restarts = [container["restartCount"] for container in containers]
        found[str(pod["metadata"]["name"])] = (pod["metadata"]["uid"], restarts)
    return found


def describe(readme: Readme) -> str:
    return readme.kubectl("describe", "trainingjob,scalein,scaleout,po")


def until_phase(readme: Readme, kind: str, name: str, phase: str) -> None:
    """Wait until `kubectl get` shows the phase; fail at once if it shows a failure."""

    def reached() -> bool:
        shown = next(row[1:] for row in rows(readme, kind) if row[0] == name)
        assert shown not in (["Failed"], ["ScaleFailed"]), describe(readme)
        return shown == [phase]

    wait_for(reached, lambda: describe(readme), 120)


def workers(*indexes: int) -> list[str]:
    return [f"{J}-launcher", *(f"{J}-worker-{index}" for index in indexes)]


def test_49_the_operator_becomes_ready(readme: Readme) -> None:
    readme.kubectl("create", "-f", "config/deploy.yaml")
    crds = readme.kubectl("get", "crd", "-o", "name")
    for plural in ("scaleins", "scaleouts", "trainingjobs"):
        assert f"{plural}.kai.alibabacloud.com" in crds

    def ready() -> bool:
        [[name, state, *_]] = rows(readme, "pod", "-n", "kube-ai")
        return name.startswith("et-operator-") and state == "1/1"

    retry_until(ready, 120)


def test_50_make_deploy_changes_the_installed_operator(readme: Readme) -> None:
    written = yaml.safe_load(readme.values.read_text())["et"]
    readme.edit(et={**written, "initContainerImage": images.PYTHON})
    readme.make("deploy")
    assert f"--init-container-image={images.PYTHON}" in readme.operator(".args")
    before = readme.versions()
    readme.make("deploy")
    assert readme.versions() == before


def sample() -> Json:
    """Return the example of a job, with an image that the cluster has and with other programs in it."""
    changes: Json = {}
    for role, script, limits in (("launcher", POLLING, {}), ("worker", LISTENING, {GPU: 1})):
        program: Json = {"name": J, "image": images.PYTHON, "command": ["sh", "-c", script]}
        changes[f"{role}.template.spec.containers"] = [{**program, "resources": {"limits": limits}}]
    return trainingjobs.job(J, changes)


def test_49_training_job_runs(readme: Readme) -> None:
    file = readme.folder / "job.yaml"
    file.write_text(yaml.safe_dump(sample()))
    readme.kubectl("apply", "-f", file.name)
    until_phase(readme, "trainingjob", J, "Running")
    assert sorted(pods(readme)) == workers(0, 1)


def test_49_scalers_leave_launcher_and_other_workers_alone(readme: Readme) -> None:
    before = pods(readme)
    readme.kubectl("create", "-f", "examples/scale_in_count.yaml")
    [[name, *_]] = rows(readme, "scalein")
    assert name.startswith("scalein-sample-")
    until_phase(readme, "scalein", name, "ScaleSucceeded")
    assert sorted(pods(readme)) == workers(0)
    readme.kubectl("create", "-f", "examples/scale_out.yaml")
    [[name, *_]] = rows(readme, "scaleout")
    assert name.startswith("elastic-training-scaleout-")
    until_phase(readme, "scaleout", name, "ScaleSucceeded")
    assert sorted(pods(readme)) == workers(0, 1, 2)
    assert {pod: pods(readme)[pod] for pod in workers(0)} == {pod: before[pod] for pod in workers(0)}


def test_undeploy_keeps_running_jobs(readme: Readme) -> None:
    before = pods(readme)
    readme.make("undeploy")
    assert rows(readme, "deployment", "-n", "kube-ai") == []
    assert pods(readme) == before


@pytest.mark.long  # tests/install/test_et_commands.py starts a job with it
def test_51_run_local_continues_with_the_job(readme: Readme) -> None:
    """The launcher does not reach an operator outside of the cluster: commands write its host list."""
    before = pods(readme)
    with run_local(readme) as make:
        readme.kubectl("scale", f"trainingjob/{J}", "--replicas=1")
        wait_for(lambda: sorted(pods(readme)) == workers(0), lambda: describe(readme), 120)
        until_phase(readme, "trainingjob", J, "Running")
        hosts = ("exec", f"{J}-launcher", "-c", J, "--", "cat", "/etc/edl/hostfile")
        assert readme.kubectl(*hosts) == f"{J}-worker-0:1\n"
        os.killpg(make.pid, signal.SIGINT)
        make.wait(60)
    assert {pod: pods(readme)[pod] for pod in workers(0)} == {pod: before[pod] for pod in workers(0)}
    assert readme.field(".spec.holderIdentity", "lease", "et-operator", "-n", "kube-ai") == ""
