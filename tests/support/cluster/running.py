"""A running real cluster for tests, with kubectl and ways to break it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.support import commands
from tests.support.assets import Programs
from tests.support.cluster import lifecycle
from tests.support.cluster.components import Settings
from tests.support.cluster.state import SWITCH, State, read
from tests.support.local_control_plane import KUBECTL
from tests.support.servers import Server

_CUT = "argosy-cut"
"""The nftables table that blocks a node from the API server."""


@dataclass(frozen=True)
class RunningCluster:
    folder: Path
    settings: Settings
    server: Server

    @classmethod
    def up(cls, folder: Path, settings: Settings, owner: int | None = None) -> "RunningCluster":
        """Start a cluster that is removed when this process, or another one, ends."""
        fresh = read(folder) is None
        try:
            server = lifecycle.up(folder, settings)
        except BaseException:
            if fresh:
                lifecycle.down(folder)  # an incomplete cluster would have no guard
            raise
        state = read(folder)
        assert state is not None
        watched = (str(owner or os.getpid()), str(state.processes[SWITCH].pid), str(folder))
        command = commands.module("tests.support.cluster.guard", *watched)
        log = str(state.layout.logs / "guard.log")
        lifecycle.module(Programs(settings.version), "launch", "--log", log, "--folder", "/", "--", *command)
        return cls(folder, settings, server)

    @property
    def state(self) -> State:
        state = read(self.folder)
        assert state is not None, f"no cluster in {self.folder}"
        return state

    def kubectl(
        self, *words: str, code: int | None = 0, stdin: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; a code other than wanted (None: any) fails the test."""
        done = subprocess.run(
            self._kubectl_command(*words),
            env=_environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if code is not None and done.returncode != code:
            output = f"{done.stdout}{done.stderr}"
            raise AssertionError(f"{' '.join(words)} ended with {done.returncode}, not {code}\n{output}")
        return done

    @contextmanager
    def running_kubectl(self, log: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run kubectl during a with block; its output goes to a file."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._kubectl_command(*words),
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _kubectl_command(self, *words: str) -> tuple[str, ...]:
        return (str(KUBECTL), "--kubeconfig", str(self.server.kubeconfig), *words)

    def get(self, *words: str) -> dict[str, object]:
        """The JSON that `kubectl get` returns."""
        return msgspec.json.decode(self.kubectl("get", *words, "-o", "json").stdout, type=dict[str, object])

    def path(self, node: str, path: str) -> Path:
        """Return where this machine sees a file of a node."""
        return Path(f"/proc/{self.state.processes[node].pid}/root{path}")

    def import_image(self, node: str, archive: Path) -> None:
        """Import an OCI archive into the containerd of a node."""
        socket_file = self.path(node, "/run/containerd/containerd.sock")
        ctr = [str(Programs(self.settings.version).find("ctr")), "--address", str(socket_file)]
        subprocess.run(
            [*ctr, "--namespace", "k8s.io", "images", "import", str(archive)],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def mend(self) -> None:
        """Restart what has ended."""
        lifecycle.up(self.folder, self.settings)

    def stop(self, name: str) -> None:
        """Kill a program such as `kube-apiserver` or `node-2/kubelet`."""
        lifecycle.stop(self.folder, name)

    def power_off(self, node: str) -> None:
        """Kill a node as a loss of power does."""
        lifecycle.power_off(self.folder, node)

    def cut_off(self, node: str) -> None:
        """Block traffic between a node and the API server; pods on the node keep running."""
        address, port = self.state.layout.host_address, self.server.port
        chains = "; ".join(
            f"chain {hook} {{ type filter hook {hook} priority -300; {what} drop; }}"
            for hook, what in (
                ("output", f"ip daddr {address} tcp dport {port}"),
                ("input", f"ip saddr {address} tcp sport {port}"),
            )
        )
        self._in_network_of(node, "nft", f"table ip {_CUT} {{ {chains}; }}")

    def reconnect(self, node: str) -> None:
        """Undo `cut_off`; a node that is not cut off, or is powered off, is not changed."""
        if not self.state.processes[node].alive:
            return
        self._in_network_of(node, "nft", f"add table ip {_CUT}; delete table ip {_CUT}")

    def _in_network_of(self, node: str, *command: str) -> None:
        enter = ("nsenter", f"--net=/proc/{self.state.processes[node].pid}/ns/net")
        subprocess.run([*enter, *command], check=True, capture_output=True, text=True, timeout=30)

    def down(self) -> None:
        lifecycle.down(self.folder)


def _environment() -> dict[str, str]:
    """Return the environment without the user's own cluster."""
    return {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
