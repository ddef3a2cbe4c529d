"""A TrainingRun with checkpoints on a real cluster, and the stores that nodes and tests reach."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from cryptography import x509

from argosy.checkpoint.registry_login import DOCKER_CONFIG, Login, docker_config
from argosy.kinds import labels
from argosy.kinds.meta import Json
from tests.support.certificates import Authority
from tests.support.cluster.running import RunningCluster
from tests.support.registry import PASSWORD, USERNAME, running_registry
from tests.support.s3_server import BUCKET, running_s3
from tests.support.servers import free_port

Object = dict[str, Any]


@dataclass(frozen=True)
class RunningTraining:
    """A TrainingRun, as its user sees it."""

    cluster: RunningCluster
    name: str

    @property
    def status(self) -> Object:
        return cast("Object", self.cluster.get("tr", self.name).get("status", {}))

    @property
    def checkpoint(self) -> Object:
        return cast("Object", self.status.get("checkpoint", {}))

    @property
    def recoveries(self) -> list[Object]:
        return cast("list[Object]", self.status.get("recoveries", []))

    def outcomes(self) -> list[str]:
        return [recovery.get("outcome", "") for recovery in self.recoveries]

    def pods(self) -> list[Object]:
        found = self.cluster.get("pods", "-l", f"{labels.JOB}={self.name}")
        return cast("list[Object]", found["items"])

    def uids(self) -> dict[str, str]:
        """Return the uids of the pods by name."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}

    def nodes(self) -> set[str]:
        return {pod["spec"].get("nodeName", "") for pod in self.pods()}

    def log(self, container: str = "main", worker: int = 0) -> list[str]:
        words = ("logs", f"{self.name}-worker-{worker}", "-c", container)
        return self.cluster.kubectl(*words, code=None).stdout.splitlines()

    def step(self) -> int:
        """Return the step that worker 0 computes; 0 if it does not run."""
        words = ("exec", f"{self.name}-worker-0", "-c", "main", "--", "sh", "-c", "cat $ARGOSY_STEP_FILE")
        return int(self.cluster.kubectl(*words, code=None).stdout or 0)

    def saved(self) -> list[str]:
        """Return the names of the checkpoints in the folder of worker 0, also of unfinished ones."""
        words = ("exec", f"{self.name}-worker-0", "-c", "main", "--", "sh", "-c", "ls $ARGOSY_CHECKPOINT_DIR")
        listed = self.cluster.kubectl(*words, code=None).stdout.split()
        return [name for name in listed if name.startswith("step-")]

    def show(self) -> str:
        """Describe the run and its pods, for messages of failed tests."""
        described = self.cluster.kubectl("describe", "trainingruns,pods,nodes", code=None).stdout
        containers = ("argosy-checkpoint-init", "argosy-checkpoint", "main")
        return "\n".join([described, *(str(self.log(container)) for container in containers)])


def checkpointed_run(name: str, role: Json, checkpoint: Json, framework: str = "standalone") -> Json:
    """Return a TrainingRun with checkpoints and the role `worker`."""
    return {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": {"framework": framework, "checkpoint": checkpoint, "roles": {"worker": role}},
    }


class StoreServer:
    """A server with checkpoints at the address of the cluster's host, which a test stops and starts."""

    def __init__(self, uri: str, secret: Json, serve: Callable[[], AbstractContextManager[object]]) -> None:
        self.uri = uri
        self.secret = secret
        self._serve = serve
        self._running = ExitStack()

    def start(self) -> None:
        self._running.enter_context(self._serve())

    def stop(self) -> None:
        self._running.close()


@contextmanager
def s3_store(cluster: RunningCluster, folder: Path) -> Iterator[StoreServer]:
    """Run an S3 server."""
    host, port = cluster.state.layout.host_address, free_port()

    def serve() -> AbstractContextManager[object]:
        return running_s3(folder, host=host, port=port)

    with running_s3(folder, host=host, port=port) as first:
        secret = _secret("s3", "Opaque", first.credentials)
    with _started(StoreServer(f"s3://{BUCKET}/team", secret, serve)) as store:
        yield store


@contextmanager
def oci_store(cluster: RunningCluster, folder: Path) -> Iterator[StoreServer]:
    """Run a registry with TLS and a login."""
    host, port, authority = cluster.state.layout.host_address, free_port(), Authority()
    certificate = authority.issue("registry", x509.IPAddress(ip_address(host)))

    def serve() -> AbstractContextManager[object]:
        return running_registry(folder, login=True, host=host, port=port, certificate=certificate)

    login = docker_config(Login(USERNAME, PASSWORD), f"{host}:{port}").decode()
    data = {DOCKER_CONFIG: login, "ca.crt": authority.certificate.decode()}
    secret = _secret("oci", "kubernetes.io/dockerconfigjson", data)
    with _started(StoreServer(f"oci://{host}:{port}/team", secret, serve)) as store:
        yield store


@contextmanager
def _started(store: StoreServer) -> Iterator[StoreServer]:
    store.start()
    try:
        yield store
    finally:
        store.stop()


def _secret(name: str, kind: str, data: Mapping[str, str]) -> Json:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": encoded}


def apply(cluster: RunningCluster, *manifests: Json) -> None:
    documents = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(documents))
