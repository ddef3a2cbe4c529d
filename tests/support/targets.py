"""What the conformance suite stands on: the local control plane, a real cluster, or a cluster of the user's.

Each is a whole one, with our operator working in it. Tests see a target through a `Tenant`, which is the
same on all of them; what differs is only how a part of it is killed.
"""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from argosy.kinds.labels import OPERATOR_NAMESPACE
from tests.support import assets, chaos, commands, framework_venvs, mpi_venvs
from tests.support.assets import DEFAULT
from tests.support.cluster import lifecycle
from tests.support.cluster.components import Settings
from tests.support.cluster.release import SELECTOR
from tests.support.cluster.running import RunningCluster
from tests.support.cluster.state import read
from tests.support.commands import ARGOSY, KUBECTL, REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for

IMAGE: Final = os.environ.get("ARGOSY_TEST_IMAGE", "local")
"""The image of tests' containers: any with a POSIX shell and python3."""
_READY_SECONDS: Final = 60.0


class ForeignCluster(Exception):  # noqa: N818 - it reads as what it is
    """This target is a cluster of the user's, and what was asked for would hurt it."""


class Target(Protocol):
    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""

    def operators(self) -> frozenset[str]:
        """The operator's processes or containers, by a name that no later one has."""

    def kill_operator(self) -> None:
        """As a crash does, all replicas at once; it comes back by itself."""

    def kill_apiserver(self) -> None:
        """As a crash does; returns when it is back."""


@dataclass(frozen=True)
class LocalTarget:
    """`argosy up`."""

    plane: ControlPlane

    @property
    def kubeconfig(self) -> Path:
        return self.plane.state.kubeconfig

    def operators(self) -> frozenset[str]:
        return frozenset({str(chaos.run_state(self.plane).components["operator"])})

    def kill_operator(self) -> None:
        chaos.kill_component(self.plane, "operator")

    def kill_apiserver(self) -> None:
        chaos.kill_component(self.plane, "apiserver")
        wait_for(
            lambda: self.plane.kubectl("get", "--raw", "/readyz", code=None).returncode == 0,
            "the API server is back",
            _READY_SECONDS,
        )


@dataclass(frozen=True)
class ClusterTarget:
    """A real cluster, with the chart's operator in its pods; `own` if it is not the user's."""

    kubeconfig: Path
    owned: RunningCluster | None = None

    def operators(self) -> frozenset[str]:
        found = cast("list[dict[str, dict[str, object]]]", self._get("pods", "-l", SELECTOR)["items"])
        return frozenset(
            f"{pod['metadata']['uid']} {status.get('restartCount')}"
            for pod in found
            for status in cast("list[dict[str, object]]", pod["status"].get("containerStatuses", ()))
        )

    def kill_operator(self) -> None:
        self._kubectl("delete", "pods", "-l", SELECTOR, "--grace-period=0", "--force")

    def kill_apiserver(self) -> None:
        if self.owned is None:
            raise ForeignCluster("ARGOSY_TEST_KUBECONFIG is set: no API server to kill")
        self.owned.stop("kube-apiserver")
        self.owned.mend()

    def install(self) -> None:
        """The operator of this clone, two replicas, under the chart's own account."""
        chosen = ("--set", "gang.backend=auto", "--set", "features.sshKeys=true")
        command = (str(ARGOSY), "install", "--kubeconfig", str(self.kubeconfig), *chosen)
        commands.run(command, commands.environment(), timeout=180)

    def _kubectl(self, *words: str) -> str:
        where = ("--kubeconfig", str(self.kubeconfig), "--namespace", OPERATOR_NAMESPACE)
        return commands.run((str(KUBECTL), *where, *words), commands.environment()).stdout

    def _get(self, *words: str) -> dict[str, object]:
        return msgspec.json.decode(self._kubectl("get", *words, "-o", "json"), type=dict[str, object])


@contextmanager
def local_target() -> Iterator[Target]:
    """A local control plane of this process's own."""
    plane = ControlPlane.up("--nodes", "2")
    try:
        yield LocalTarget(plane)
    finally:
        plane.down()


def cluster_target(owner: int) -> Target:
    """The cluster that all test processes of one run share: the first that asks brings it up.

    It ends with the process `owner`, or by `end_cluster`.
    """
    if given := os.environ.get("ARGOSY_TEST_KUBECONFIG"):
        return ClusterTarget(Path(given).absolute())
    folder = _folder(owner)
    with _locked(folder):
        state = read(folder)
        if state is not None:
            running = RunningCluster(folder, state.settings, state.server)
            return ClusterTarget(state.server.kubeconfig, running)
        running = RunningCluster.up(folder, SETTINGS, owner=owner)
        target = ClusterTarget(running.server.kubeconfig, running)
        try:
            target.install()
        except BaseException:
            running.down()  # the next one must not take it for whole
            raise
        return target


def end_cluster(owner: int) -> None:
    """Take away the cluster that `owner` shared with others, if there is one."""
    folder = _folder(owner)
    lifecycle.down(folder)
    for lock in folder.parent.glob(f"{folder.name}.*"):
        lock.unlink(missing_ok=True)


@contextmanager
def cluster_access(owner: int, *, alone: bool) -> Iterator[None]:
    """Stand on the shared cluster, with others or alone. Who waits to be alone lets nobody else begin."""
    folder = _folder(owner)
    with folder.with_suffix(".room").open("w") as room:
        with folder.with_suffix(".door").open("w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def _host_paths() -> tuple[str, ...]:
    """What pods mount of this machine: the clone, its Python, MPIs, frameworks, an etcd."""
    own = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix)}
    folders = own | {mpi_venvs.cache(), framework_venvs.cache(), assets.cache()}
    return tuple(str(path) for path in sorted(folders) if path.is_dir() and path != Path("/usr"))


SETTINGS: Final = Settings(DEFAULT, nodes=2, shown=_host_paths())


def _folder(owner: int) -> Path:
    return Path(tempfile.gettempdir()) / f"argosy-shared-{owner}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
