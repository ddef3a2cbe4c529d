"""Acceptance cases 51, 52 and 54: the commands of AresOperator's README with `deploy/ares`, without Volcano.

Tests run in the order of the file; each continues with the cluster as the previous one left it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml
from click.testing import CliRunner

from argosy.cli.install import install
from argosy.kinds.meta import Json
from tests.support import initializer_command
from tests.support.builders import pod_template, run
from tests.support.cluster import images
from tests.support.cluster.running import RunningCluster
from tests.support.targets import ClusterTarget
from tests.support.user import User
from tests.support.waiting import retry_until

pytestmark = [pytest.mark.cluster, pytest.mark.sequential, pytest.mark.root, pytest.mark.timeout(300)]

FOLDER = Path(__file__).parents[2] / "deploy" / "ares"
APPLIED = ("build/crd/.", "build/observer.yaml", "build/operator.yaml")
BEFORE_THE_CRD = ("build/crd/00-namespace.yaml", "build/crd/20-rights.yaml", *APPLIED[1:])
SAMPLES = sorted((FOLDER / "config/samples").glob("*.yaml"))
HOME, OTHER_NAMESPACE = "ares-jobs", "argosy-other"
ALL = {"ares-operator": 1, "ares-observer": 2}


@pytest.fixture(scope="module")
def applied(cluster: RunningCluster) -> Iterator[RunningCluster]:
    cluster.kubectl("create", "namespace", HOME)
    for path in BEFORE_THE_CRD:
        cluster.kubectl("apply", "-f", str(FOLDER / path))
    yield cluster
    cluster.kubectl("delete", "aj", "-n", HOME, "--all", "--timeout=60s", code=None)
    for path in reversed(APPLIED):
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", str(FOLDER / path))
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        cluster.kubectl("delete", kind, "--ignore-not-found", "ares-operator-ares")
    cluster.kubectl("delete", "namespace", HOME, "--wait=false")


@pytest.fixture
def with_crd(applied: RunningCluster) -> RunningCluster:
    """Return the installation with its CRD, whichever tests of this file ran before."""
    for path in APPLIED:
        applied.kubectl("apply", "-f", str(FOLDER / path))
    rolled_out(applied, "ares", "ares-operator")
    return applied


def ready(cluster: RunningCluster) -> dict[str, int]:
    """Return how many pods of each Deployment in namespace `ares` are ready."""
    counts: dict[str, int] = {}
    for line in cluster.kubectl("get", "pods", "-n", "ares", "--no-headers").stdout.splitlines():
        name, state, *_ = line.split()
        deployment = "-".join(name.split("-")[:2])
        counts[deployment] = counts.get(deployment, 0) + (state == "1/1")
    return counts


def test_51_operator_and_observers_become_ready_before_the_crd(applied: RunningCluster) -> None:
    """one `ares-operator-…` and two `ares-observer-…`, all ready"""
    retry_until(lambda: ready(applied) == ALL, 300)


def test_51_commands_of_the_readme_can_be_repeated_without_changes(
    applied: RunningCluster,
) -> None:
    for path in APPLIED:
        applied.kubectl("apply", "-f", str(FOLDER / path))
    for path in APPLIED:
        output = applied.kubectl("apply", "-f", str(FOLDER / path)).stdout
        assert {line.rpartition(" ")[2] for line in output.splitlines()} == {"unchanged"}, output


def sample(name: str, command: str = "") -> Json:
    """Return a sample with an image, and optionally with another command in all its containers."""
    text = (FOLDER / "config/samples" / f"{name}.yaml").read_text().replace("${IMAGE}", images.PYTHON)
    job = cast("dict[str, dict[str, dict[str, Json]]]", yaml.safe_load(text))
    for role in job["spec"]["roleSpecs"].values() if command else ():
        pod = cast("dict[str, dict[str, list[Json]]]", role["template"])["spec"]
        pod["containers"][0]["command"] = ["sh", "-c", command]
    return cast("Json", job)


def put(cluster: RunningCluster, job: Json) -> None:
    cluster.kubectl("apply", "-n", HOME, "-f", "-", stdin=json.dumps(job))


def until(cluster: RunningCluster, name: str, phase: str) -> None:
    def reached() -> bool:
        status = cast("Json", cluster.get("aj", "-n", HOME, name).get("status", {}))
        assert status.get("phase") == phase, status
        return True

    retry_until(reached, 120)


def observer_url(cluster: RunningCluster, pod: str) -> str:
    """Return the address that the initializer of the pod with this name prefix uses."""
    pods = cast("list[dict[str, dict[str, object]]]", cluster.get("pods", "-n", HOME)["items"])
    (manifest,) = (candidate for candidate in pods if str(candidate["metadata"]["name"]).startswith(pod))
    (container,) = cast("list[dict[str, list[dict[str, str]]]]", manifest["spec"]["initContainers"])
    return next(variable["value"] for variable in container["env"] if variable["name"] == "ARGOSY_URL")


def waiting_job(name: str) -> Json:
    """Return the custom sample, whose launcher waits for its workers, with commands that end on their own."""
    job = cast("dict[str, dict[str, dict[str, Json]]]", sample("custom-sample", "sleep 3"))
    job["spec"]["roleSpecs"]["launcher"]["dependence"] = {"roleNames": ["worker"]}
    job["metadata"]["name"] = cast("dict[str, Json]", name)
    return cast("Json", job)


def test_job_with_dependencies_runs_with_observers(applied: RunningCluster) -> None:
    put(applied, waiting_job("by-name"))
    until(applied, "by-name", "Succeeded")
    assert observer_url(applied, "by-name-launcher-0") == "https://ares-observer.ares"


def test_54_every_sample_runs(applied: RunningCluster) -> None:
    """`${IMAGE}` replaced -> applied without a validation error, not InvalidDefinition, reaches Running"""
    jobs = [sample(path.stem) for path in SAMPLES if path.stem != "mpi-sample"]  # that one is below
    names = [str(cast("Json", job["metadata"])["name"]) for job in jobs]
    assert len(names) == 7
    for job in jobs:
        put(applied, job)
    for name in names:
        until(applied, name, "Running")
    applied.kubectl("delete", "aj", "-n", HOME, *names)


def test_pod_in_the_host_network_uses_the_address_of_the_service(applied: RunningCluster) -> None:
    """52. both Running afterwards; for hostNetwork roles the Service's ClusterIP instead of its name."""
    put(applied, sample("mpi-sample"))
    until(applied, "mpi-sample", "Running")
    address = applied.kubectl(
        "get", "service", "-n", "ares", "ares-observer", "-o", "jsonpath={.spec.clusterIP}"
    ).stdout
    assert observer_url(applied, "mpi-sample-launcher-0") == f"https://{address}"
    applied.kubectl("delete", "aj", "-n", HOME, "mpi-sample")


def change(cluster: RunningCluster, *values: str, file: Path | None = None) -> None:
    """Apply the installation with these values by `kubectl apply`, and wait until it is rolled out."""
    cluster.kubectl("apply", "-f", "-", stdin=installed("ares", "ares", *values, file=file))
    rolled_out(cluster, "ares", *ALL)


def installed(api: str, namespace: str, *values: str, file: Path | None = None) -> str:
    """Return the objects that `argosy install` would apply."""
    words = [word for value in values for word in ("--set", value)]
    words += ["--values", str(file)] if file else []
    words += ["--api", api, "-n", namespace, "--dry-run"]
    return CliRunner().invoke(install, words, catch_exceptions=False).output


def rolled_out(cluster: RunningCluster, namespace: str, *names: str) -> None:
    for name in names:
        rollout = ("rollout", "status", f"deployment/{name}", "-n", namespace, "--timeout=120s")
        cluster.kubectl(*rollout, timeout=150)


@pytest.mark.long
def test_observers_without_tokens_on_a_node_port(with_crd: RunningCluster) -> None:
    """nodePort > 0 -> `nodePort://<sorted distinct observer host IPs, comma>:<port>`; auth none."""
    change(with_crd, "observer.auth=none", "observer.nodePort=30037")
    put(with_crd, waiting_job("by-port"))
    until(with_crd, "by-port", "Succeeded")
    url = observer_url(with_crd, "by-port-launcher-0")
    selector = ("-l", "app.kubernetes.io/component=observer")
    listed = with_crd.get("pods", "-n", "ares", *selector)["items"]
    hosts = {str(observer["status"]["hostIP"]) for observer in cast("list[dict[str, Json]]", listed)}
    assert url.startswith("nodePort://")
    assert url.endswith(":30037")
    assert set(url.removeprefix("nodePort://").removesuffix(":30037").split(",")) <= hosts


@pytest.mark.long
def test_roles_wait_with_a_configured_command(with_crd: RunningCluster, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"config": initializer_command.settings("python3")}))
    change(with_crd, file=file)
    initializer_command.check(User(ClusterTarget(with_crd.server.kubeconfig), HOME))


def test_webhooks_reject_invalid_jobs(applied: RunningCluster) -> None:
    change(applied, "webhooks.enabled=true")
    wrong, right = sample("standalone"), sample("standalone")
    cast("dict[str, Json]", wrong["spec"])["roleSpecs"] = {}

    def refused() -> bool:
        done = applied.kubectl("apply", "-n", HOME, "-f", "-", stdin=json.dumps(wrong), code=1)
        assert "spec.roleSpecs: must have at least one role" in done.stderr, done.stderr
        assert 'admission webhook "varesjob.ares.io" denied the request' in done.stderr
        return True

    retry_until(refused, 60)
    put(applied, right)
    stored = cast("dict[str, Json]", applied.get("aj", "-n", HOME, "standalone-sample"))["spec"]
    assert cast("Json", stored["runPolicy"])["cleanPodPolicy"] == "None"
    until(applied, "standalone-sample", "Running")
    applied.kubectl("delete", "aj", "-n", HOME, "standalone-sample")


@pytest.mark.long
def test_installation_of_another_api_in_the_same_cluster(with_crd: RunningCluster) -> None:
    """each Deployment serves only its own API and has its own Lease"""
    other = installed("argosy", OTHER_NAMESPACE, "replicas=1")
    template = pod_template(images.PYTHON, command=["sleep", "2"])
    with_crd.kubectl("create", "namespace", OTHER_NAMESPACE)
    try:
        with_crd.kubectl("apply", "--server-side", "-f", "-", stdin=other)
        rolled_out(with_crd, OTHER_NAMESPACE, "argosy-operator")
        wanted = run("run", namespace=HOME).role("worker", 1, template=template).build()
        with_crd.kubectl("apply", "-f", "-", stdin=json.dumps(wanted))
        put(with_crd, waiting_job("other"))
        until(with_crd, "other", "Succeeded")
        done = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
        with_crd.kubectl("wait", "tr", "-n", HOME, "run", *done, timeout=90)
        leases = cast("list[dict[str, dict[str, str]]]", with_crd.get("lease", "-A")["items"])
        names = {(lease["metadata"]["namespace"], lease["metadata"]["name"]) for lease in leases}
        assert names >= {("ares", "ares-operator"), (OTHER_NAMESPACE, "argosy-operator")}
    finally:
        with_crd.kubectl("delete", "tr", "-n", HOME, "--all", code=None)
        with_crd.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=other, timeout=120)
        with_crd.kubectl("delete", "namespace", OTHER_NAMESPACE, "--wait=false")
