"""The targets that the conformance suite runs on: a local control plane, a real cluster, or a given cluster.

Each has a running operator. Tests use a target through a `User`, which is the same for all of them; targets
differ in how the operator and the API server are killed.
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
ET_VALUES: Final = ("apis.et=true", "et.initContainerImage=")
"""The image of the containers in tests; it needs a POSIX shell and python3."""
_READY_SECONDS: Final = 60.0


class ForeignCluster(Exception):  # noqa: N818 - the name reads well without "Error"
    """The cluster was given by ARGOSY_TEST_KUBECONFIG, and the operation would damage it."""


class Target(Protocol):
    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""

    def shared_folder(self, temporary: Path) -> Path:
        """A folder that all nodes and the test see; `temporary` is the test's own."""

    def operators(self) -> frozenset[str]:
        """A unique name for each running process or container of the operator."""

    def kill_operator(self) -> None:
        """Kill all replicas of the operator at once, as a crash does; the target restarts it."""

    def kill_apiserver(self) -> None:
        """Kill the API server as a crash does; returns when it is ready again."""


@dataclass(frozen=True)
class LocalTarget:
    """A local control plane, started by `argosy up`."""

    plane: ControlPlane

    @property
    def kubeconfig(self) -> Path:
        return self.plane.state.kubeconfig

    def shared_folder(self, temporary: Path) -> Path:
        return temporary

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
    """A real cluster with the operator of the chart; `owned` is None for a given cluster."""

    kubeconfig: Path
    owned: RunningCluster | None = None

    def shared_folder(self, temporary: Path) -> Path:
        if self.owned is None:
            raise ForeignCluster("ARGOSY_TEST_KUBECONFIG is set: no folder that its nodes see")
        folder = self.owned.folder / "shared" / f"{os.getpid()}-{temporary.name}"
        folder.mkdir(parents=True)
        return folder

    def operators(self) -> frozenset[str]:
        pods = cast("list[dict[str, dict[str, object]]]", self._get("pods", "-l", SELECTOR)["items"])
        return frozenset(
            f"{pod['metadata']['uid']} {status.get('restartCount')}"
            for pod in pods
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
        """Install the operator of this clone with the chart: two replicas, the chart's ServiceAccount."""
        values = ("gang.backend=auto", "features.sshKeys=true", *ET_VALUES)
        options = [word for value in values for word in ("--set", value)]
        command = (str(ARGOSY), "install", "--kubeconfig", str(self.kubeconfig), *options)
        commands.run(command, commands.environment(), timeout=180)

    def _kubectl(self, *words: str) -> str:
        options = ("--kubeconfig", str(self.kubeconfig), "--namespace", OPERATOR_NAMESPACE)
        return commands.run((str(KUBECTL), *options, *words), commands.environment()).stdout

    def _get(self, *words: str) -> dict[str, object]:
        return msgspec.json.decode(self._kubectl("get", *words, "-o", "json"), type=dict[str, object])


@contextmanager
def local_target() -> Iterator[Target]:
    """A new local control plane for this process."""
    plane = ControlPlane.up("--nodes", "2")
    try:
        yield LocalTarget(plane)
    finally:
        plane.down()


def cluster_target(owner: int) -> Target:
    """The cluster that all test processes of one run share; the first process that needs it starts it.

    It ends with the process `owner`, or by `end_cluster`.
    """
    if kubeconfig := os.environ.get("ARGOSY_TEST_KUBECONFIG"):
        return ClusterTarget(Path(kubeconfig).absolute())
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
            running.down()  # the next process must not use a cluster without an operator
            raise
        return target


def end_cluster(owner: int) -> None:
    """End the cluster that the process `owner` and its workers shared, if there is one."""
    folder = _folder(owner)
    lifecycle.down(folder)
    for lock in folder.parent.glob(f"{folder.name}.*"):
        lock.unlink(missing_ok=True)


@contextmanager
def cluster_access(owner: int, *, exclusive: bool) -> Iterator[None]:
    """Use the shared cluster during the block, shared with others or exclusively.

    A process that waits for exclusive access holds the queue, so that no new shared access starts before it.
    """
    folder = _folder(owner)
    with folder.with_suffix(".access").open("w") as access:
        with folder.with_suffix(".queue").open("w") as queue:
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(access, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield


def _host_paths() -> tuple[str, ...]:
    """Folders of this machine that pods mount: the clone, Python, MPI, frameworks, programs of Kubernetes."""
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
