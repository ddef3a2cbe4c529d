"""A run of two pods keeps its checkpoints in an S3 server or a registry, and loses a node.

Each pod has a folder of its own, the sidecars send what is saved there, and the pods of the second attempt
restore it. The servers listen in the network of the nodes, where the pods reach them.
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from argosy.checkpoint.registry_login import DOCKER_CONFIG, Login, docker_config
from argosy.cli.local_mounts import mount_working_dir
from tests.support.certificates import Authority
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.node_agents import enter_node_network
from tests.support.registry import PASSWORD, PROGRAM, USERNAME, running_registry
from tests.support.s3_server import BUCKET, require_s3_server, running_s3
from tests.support.servers import free_port
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.timeout(300)]

PROGRAM_FILE = "tests/support/lockstep.py"
STEPS = "500"
OUR_CONTAINERS = ("argosy-checkpoint-init", "argosy-checkpoint")
SECRET_FOLDER = "/run/argosy-store-credentials"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes the tests take away."""
    running = ControlPlane.up("--nodes", "3")
    yield running
    running.down()


class Store:
    """A server in the network of the nodes: the URI for a run, and the content of its Secret."""

    def __init__(self, uri: str, secret: Mapping[str, str], secret_type: str, files: Path) -> None:
        self.uri = uri
        self.secret = secret
        self.secret_type = secret_type
        self.files = files


@contextmanager
def s3(folder: Path, plane: ControlPlane, host: str) -> Iterator[Store]:
    require_s3_server()
    with running_s3(folder, enter=enter_node_network(plane), host=host) as running:
        yield Store(f"s3://{BUCKET}/team", running.credentials, "Opaque", running.objects)


@contextmanager
def oci(folder: Path, plane: ControlPlane, host: str) -> Iterator[Store]:
    if PROGRAM is None:
        pytest.skip("docker-registry is not installed")
    authority = Authority()
    certificate = authority.issue("registry", x509.IPAddress(ip_address(host)))
    enter = enter_node_network(plane)
    with running_registry(folder, login=True, enter=enter, host=host, certificate=certificate) as running:
        login = docker_config(Login(USERNAME, PASSWORD), running.address).decode()
        secret = {DOCKER_CONFIG: login, "ca.crt": authority.certificate.decode()}
        kind = "kubernetes.io/dockerconfigjson"
        yield Store(f"oci://{running.address}/team", secret, kind, running.folder)


class Training:
    """A TrainingRun of the program, whose checkpoints are in a store."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name

    def start(self, store: Store) -> None:
        data = {key: base64.b64encode(value.encode()).decode() for key, value in store.secret.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name}}
        objects = [{**secret, "type": store.secret_type, "data": data}, self._run(store)]
        documents = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(documents))

    def _run(self, store: Store) -> dict[str, object]:
        container = {
            "name": "main",
            "image": "local",
            "command": ["python3", PROGRAM_FILE, STEPS],
            "env": [{"name": "PACE", "value": "0.2"}],
        }
        pod = {"terminationGracePeriodSeconds": 2, "containers": [container]}
        spec = {
            "framework": "pytorch",
            "checkpoint": {"store": store.uri, "credentials": self.name, "interval": "1s"},
            "roles": {"worker": {"replicas": 2, "template": {"spec": pod}}},
        }
        run = {"apiVersion": "argosy.dev/v1alpha1", "kind": "TrainingRun", "metadata": {"name": self.name}}
        return mount_working_dir(
            {**run, "spec": spec}, REPOSITORY, Path(sys.prefix), Path(sys.executable), os.environ
        )

    @property
    def status(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.plane.get(f"tr/{self.name}").get("status", {}))

    @property
    def pods(self) -> list[dict[str, Any]]:
        found = self.plane.get("pods", "-l", f"argosy.dev/job={self.name}")
        return cast("list[dict[str, Any]]", found["items"])

    def log(self, container: str = "main", worker: int = 0) -> list[str]:
        words = ("logs", f"{self.name}-worker-{worker}", "-c", container)
        return self.plane.kubectl(*words, code=None).stdout.splitlines()

    def explain(self) -> str:
        described = self.plane.kubectl("get", "tr,pods", "-o", "yaml").stdout
        logs = [self.log(name, worker) for worker in range(2) for name in (*OUR_CONTAINERS, "main")]
        return f"{described}\n{logs}"


@contextmanager
def undisturbed() -> Iterator[list[subprocess.Popen[str]]]:
    """Run the program without Argosy; its result is the last line."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    variables = {**os.environ, **shared, "PYTHONPATH": str(REPOSITORY / "src")}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(REPOSITORY / PROGRAM_FILE), STEPS],
            env={**variables, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


Serve = Callable[[Path, ControlPlane, str], AbstractContextManager[Store]]
STORES = [pytest.param(s3, id="s3"), pytest.param(oci, id="oci", marks=pytest.mark.long)]


@pytest.mark.parametrize("serve", STORES)
def test_run_that_loses_a_node_continues_from_the_store_with_the_same_result(
    plane: ControlPlane, tmp_path: Path, serve: Serve, request: pytest.FixtureRequest
) -> None:
    training = Training(plane, request.node.callspec.id)
    nodes = cast("dict[str, Any]", plane.get("nodes"))["items"]
    [host] = {
        address["address"] for address in nodes[0]["status"]["addresses"] if address["type"] == "InternalIP"
    }
    with serve(tmp_path, plane, host) as store, undisturbed() as ranks:
        training.start(store)
        wait_for(lambda: training.status.get("checkpoint", {}).get("lastStep"), training.explain)
        assert_only_our_containers_have_the_secret(training)
        [lost, *_] = {pod["spec"]["nodeName"] for pod in training.pods}
        plane.argosy("rehearse", "reclaim", lost, "--in", "60s")
        wait_for(lambda: training.status["phase"] in ("Succeeded", "Failed"), training.explain, 120)
        assert training.status["phase"] == "Succeeded", training.explain()
        [recovery] = training.status["recoveries"]
        assert (recovery["outcome"], recovery["stepsLost"]) == ("Recovered", 0)
        assert lost not in {pod["spec"]["nodeName"] for pod in training.pods}
        restored = f"argosy: resuming from step {recovery['savedStep']}"
        assert restored in training.log("argosy-checkpoint-init")
        assert training.log()[0] == f"from step {recovery['savedStep']}"
        assert training.log()[-1] == ranks[0].communicate(timeout=60)[0].splitlines()[-1]
        assert training.log()[-1].startswith("result ")
    plane.kubectl("delete", f"tr/{training.name}")


def assert_only_our_containers_have_the_secret(training: Training) -> None:
    for pod in training.pods:
        spec = pod["spec"]
        mounting = {
            container["name"]
            for container in (*spec["initContainers"], *spec["containers"])
            if SECRET_FOLDER in [mount["mountPath"] for mount in container["volumeMounts"]]
        }
        assert mounting == set(OUR_CONTAINERS)
    pod_name = f"{training.name}-worker-1"
    listing = ("exec", pod_name, "-c", "main", "--", "ls", SECRET_FOLDER)
    assert "No such file" in training.plane.kubectl(*listing, code=None).stderr
