"""A local control plane whose operator buys VMs from the cloud of `argosy rehearse spot`."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from tests.support.local_control_plane import ControlPlane
from tests.support.servers import free_port
from tests.support.spot_instances import CREDENTIALS, JOIN
from tests.support.spot_jobs import EXAMPLES, Json


@dataclass(frozen=True)
class Rehearsal:
    plane: ControlPlane
    endpoint: str

    def apply(self, *manifests: Mapping[str, object]) -> None:
        for manifest in manifests:
            self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def apply_secrets(self) -> None:
        """Create what a user needs to buy VMs; each gets a bootstrap token of its own."""
        self.apply(
            _secret("gcp-credentials", {"credentials.json": CREDENTIALS}),
            _secret("kubeadm-join-token", {**JOIN, "token": b"auto"}),
        )

    def preempt(self, vm: str) -> None:
        self.plane.argosy("rehearse", "preempt", vm, "--endpoint", self.endpoint)

    def vms(self) -> list[str]:
        """Return the names of all VMs in the cloud."""
        with urllib.request.urlopen(f"{self.endpoint}/rehearsal/vms", timeout=10) as answer:
            return [str(vm["name"]) for vm in cast("list[Json]", json.load(answer))]


@contextmanager
def rehearsal(notice: str) -> Iterator[Rehearsal]:
    """One node that was not bought, a cloud, and an operator that may buy there."""
    with rehearsed_cloud(notice) as rehearsed:
        words = ("operator", "--local", str(rehearsed.plane.state.folder))
        with running(rehearsed.plane, *words, *buying_options(rehearsed.endpoint)):
            yield rehearsed


@contextmanager
def rehearsed_cloud(notice: str) -> Iterator[Rehearsal]:
    """One node that was not bought and a cloud; no operator."""
    plane, port = ControlPlane.up("--nodes", "1", "--no-operator"), free_port()
    try:
        with running(plane, "rehearse", "spot", "--port", str(port), "--boot", "1s", "--notice", notice):
            yield Rehearsal(plane, f"http://127.0.0.1:{port}")
    finally:
        plane.down()


def buying_options(endpoint: str, apis: Sequence[str] = ("spot",)) -> tuple[str, ...]:
    """Return the options of an operator that serves APIs and buys VMs at an endpoint."""
    return (
        *(word for api in apis for word in ("--api", api)),
        *("--gce-endpoint", endpoint, "--bootstrap-token-namespaces", "default"),
        *("--catalog-path", str(EXAMPLES / "catalog.csv"), "--instance-poll", "1"),
    )


@contextmanager
def running(plane: ControlPlane, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run an `argosy` command for the duration of the block."""
    process = plane.start(*words)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _secret(name: str, data: Mapping[str, bytes]) -> Json:
    text = {key: value.decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": text}
