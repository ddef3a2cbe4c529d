"""Names the files in the state folder of a local control plane: keys, objects, logs and sockets.

There is one folder per cluster name, readable by its owner only. All processes of the control plane use these
paths. Nothing outside the folder is written.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

DEFAULT_CLUSTER = "local"
_MIN_FREE_BYTES = 1 << 20
"""With less than this free, the disk counts as full: the store grows in larger steps."""

_MAX_SOCKET_PATH_BYTES = 107  # sun_path has 108 bytes, including the final zero


class StateError(Exception):
    """The state folder cannot be used; the message says why and what to do."""


class State(Struct, frozen=True):
    folder: Path

    @classmethod
    def of(cls, cluster: str = DEFAULT_CLUSTER) -> "State":
        """Return the state folder of a cluster: below $ARGOSY_HOME, else in the user's state folder."""
        return cls(_home() / cluster)

    def create(self) -> None:
        """Create the folder and its subfolders; raises StateError if that fails."""
        longest = max(
            len(os.fsencode(path)) for path in (self.api_socket, self.agent_socket, self.operator_socket)
        )
        if longest > _MAX_SOCKET_PATH_BYTES:
            raise StateError(
                f"{self.folder}: the path is too long for a Unix socket "
                f"(by {longest - _MAX_SOCKET_PATH_BYTES} bytes); set ARGOSY_HOME to a shorter folder"
            )
        try:
            for part in (self.folder, self.pki, self.kubeconfigs, self.logs, self.pods):
                part.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.chmod(0o700)
            self._probe()
        except OSError as error:
            raise StateError(
                f"{self.folder}: cannot be written ({error.strerror}); "
                "free disk space, or set ARGOSY_HOME to a writable folder"
            ) from error

    def problem(self) -> str:
        """Describe why nothing can be written here now; empty if it can."""
        try:
            disk = os.statvfs(self.folder)
            free = disk.f_bavail * disk.f_frsize
            if free < _MIN_FREE_BYTES:
                return f"full: {free // 1024} kB free in {self.folder}; free disk space to continue"
            self._probe()
        except OSError as error:
            return f"{self.folder} cannot be written ({error.strerror})"
        return ""

    def _probe(self) -> None:
        probe = self.folder / ".writable"
        probe.write_bytes(b"x" * 4096)
        probe.unlink(missing_ok=True)  # another process may do the same at the same time

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def kubelet_certificate(self) -> Path:
        """The certificate with which the node agent serves the kubelet's port; its key is beside it."""
        return self.pki / "kubelet.crt"

    @property
    def kubeconfigs(self) -> Path:
        """Kubeconfigs of the control plane's own components, one identity each."""
        return self.folder / "kubeconfigs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig: the one for kubectl."""
        return self.folder / "kubeconfig"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.json"

    @property
    def store(self) -> Path:
        return self.folder / "store.db"

    @property
    def api_socket(self) -> Path:
        return self.folder / "apiserver.sock"

    @property
    def agent_socket(self) -> Path:
        return self.folder / "agent.sock"

    @property
    def operator_socket(self) -> Path:
        return self.folder / "operator.sock"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def pods(self) -> Path:
        return self.folder / "pods"

    @property
    def prepared(self) -> Path:
        """Exists once keys, tokens and kubeconfigs match the running control plane."""
        return self.folder / "prepared"

    @property
    def nodes(self) -> Path:
        """The record of the nodes if they differ from those asked for: see `argosy.local.node_set`."""
        return self.folder / "nodes.json"

    @property
    def run(self) -> Path:
        """The record of the running processes: see `argosy.local.processes`."""
        return self.folder / "run.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock, so that only one process starts or stops this cluster at a time.

        The lock belongs to the open file, so it ends with its process and cannot become stale.
        """
        with (self.folder / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError(
                    f"{self.folder}: another `argosy up` or `argosy down` is running; wait for it to finish"
                ) from None
            yield


def _home() -> Path:
    if home := os.environ.get("ARGOSY_HOME"):
        return Path(home).absolute()
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state).absolute() / "argosy"
    return Path.home() / ".local" / "state" / "argosy"
