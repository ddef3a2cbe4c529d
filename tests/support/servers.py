"""Starts the two API servers of tests: a real kube-apiserver, which is the reference, and the local one.

Both have the same users with static tokens, listen on loopback only, and keep all files in one folder. A
server started for tests is tethered: the kernel kills it when the process that started it ends, so that a
killed test run leaves nothing behind. `scripts/kubernetes up` starts the real one without a tether.
"""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from argosy.local.apiserver.kubeconfig import write_kubeconfig
from argosy.local.apiserver.pki import ensure_pki
from argosy.local.state import State
from tests.support import commands
from tests.support.assets import Programs

_READY_SECONDS = 60.0
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class TokenUser:
    token: str
    name: str
    groups: tuple[str, ...] = ()

    @property
    def uid(self) -> str:
        return f"uid-of-{self.name}"


ADMIN = TokenUser("testing-admin-token", "testing-admin", ("system:masters",))
STRANGER = TokenUser("testing-stranger-token", "stranger")
"""A user with only the rights of every authenticated user."""
READER = TokenUser("testing-reader-token", "reader", ("readers",))
"""A user to whom tests grant rights."""
USERS = (ADMIN, STRANGER, READER)


@dataclass(frozen=True)
class Server:
    name: str
    url: str
    token: str
    ca_file: Path
    kubeconfig: Path
    folder: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


class ServerFailed(Exception):  # noqa: N818 - the name reads well without "Error"
    """A server ended, or was not ready in time; the message ends with the last lines of its log."""


@contextlib.contextmanager
def real_apiserver(folder: Path) -> Iterator[Server]:
    """etcd and kube-apiserver for the duration of a with block."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        yield start_real(folder, free_port(), processes, tethered=True)
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


@contextlib.contextmanager
def local_apiserver(folder: Path, *options: str) -> Iterator[Server]:
    """The local API server without nodes and controllers, for the duration of a with block."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        yield start_local(folder, free_port(), processes, options)
    finally:
        for process in reversed(processes):
            stop_process(process)


def start_real(
    folder: Path,
    port: int,
    processes: list[subprocess.Popen[bytes]],
    *,
    tethered: bool,
    programs: Programs = Programs(),
) -> Server:
    """Start etcd and kube-apiserver and wait until they are ready; appends the processes to `processes`."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    prepare_real(folder)
    for name, command in real_commands(folder, port, programs).items():
        processes.append(_start(command, folder, folder / "logs" / f"{name}.log", tethered=tethered))
    server = describe("kubernetes", folder, _LOOPBACK, port)
    wait_ready(server, processes, folder / "logs" / "kube-apiserver.log")
    return server


def real_commands(folder: Path, port: int, programs: Programs = Programs()) -> dict[str, tuple[str, ...]]:
    """The commands of etcd and kube-apiserver, in the order of their start."""
    etcd, apiserver = programs.find("etcd"), programs.find("kube-apiserver")
    flags = (
        *apiserver_flags(folder, _LOOPBACK, port, "10.96.0.0/16"),
        # No client uses the API server through its Service.
        "--endpoint-reconciler-type=none",
        f"--client-ca-file={folder}/pki/ca.crt",
    )
    return {
        "etcd": (str(etcd), *etcd_flags(folder)),
        "kube-apiserver": (str(apiserver), *flags),
    }


def prepare_real(folder: Path, addresses: Sequence[str] = ()) -> None:
    """Write the keys and users of a real API server that listens on loopback or on these addresses."""
    ensure_pki(folder, addresses)
    _write_public_key(folder / "pki")
    lines = [f'{user.token},{user.name},{user.uid},"{",".join(user.groups)}"' for user in USERS]
    (folder / "tokens.csv").write_text("\n".join(lines) + "\n")


def start_local(
    folder: Path, port: int, processes: list[subprocess.Popen[bytes]], options: Sequence[str] = ()
) -> Server:
    """Start the local API server and wait until it is ready."""
    State(folder).create()
    ensure_pki(folder)
    users = {u.token: {"user": u.name, "uid": u.uid, "groups": list(u.groups)} for u in USERS}
    (folder / "tokens.json").write_text(json.dumps(users))
    (folder / "tokens.json").chmod(0o600)
    module = (sys.executable, "-m", "argosy.local.apiserver")
    command = (*module, "--state", str(folder), "--port", str(port), *options)
    log = folder / "logs" / "apiserver.log"
    processes.append(_start(command, folder, log, tethered=True))
    server = describe("local", folder, _LOOPBACK, port)
    wait_ready(server, processes, log)
    return server


def _write_public_key(folder: Path) -> None:
    """Write the public key of the token signer, which kube-apiserver needs in a separate file."""
    key = serialization.load_pem_private_key((folder / "sa.key").read_bytes(), password=None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "sa.pub").write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


def free_port() -> int:
    """A TCP port on loopback that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_listening(host: str, port: int, enter: Sequence[str] = ()) -> bool:
    """Return True if a server listens there; `enter` is a command that executes others elsewhere."""
    probe = (*enter, "bash", "-c", f": < /dev/tcp/{host}/{port}")
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


_ETCD = "unix://localhost:2379"
_ETCD_PEER = "unix://localhost:2380"
"""Unix sockets with these names in the working folder, so that no port is used; etcd requires this form."""


MAX_ETCD_BYTES = 8 << 30
"""etcd rejects all writes at 2 GiB by default, which benchmarks with tens of thousands of pods can reach."""


def etcd_flags(folder: Path) -> tuple[str, ...]:
    """The flags of etcd with its data in a folder, which must be its working folder."""
    return (
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={_ETCD_PEER}",
        f"--initial-advertise-peer-urls={_ETCD_PEER}",
        f"--initial-cluster=default={_ETCD_PEER}",
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={MAX_ETCD_BYTES}",
        "--log-level=warn",
    )


def apiserver_flags(folder: Path, address: str, port: int, services: str) -> tuple[str, ...]:
    """The flags that every kube-apiserver here has; its working folder is that of etcd."""
    return (
        f"--etcd-servers={_ETCD}",
        f"--secure-port={port}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--tls-cert-file={folder}/pki/apiserver.crt",
        f"--tls-private-key-file={folder}/pki/apiserver.key",
        f"--token-auth-file={folder}/tokens.csv",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder}/pki/sa.pub",
        f"--service-account-signing-key-file={folder}/pki/sa.key",
        f"--service-cluster-ip-range={services}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--cert-dir={folder}",
    )


def describe(name: str, folder: Path, address: str, port: int) -> Server:
    """The address and credentials of an API server; writes the administrator's kubeconfig."""
    url, authority, kubeconfig = f"https://{address}:{port}", folder / "pki" / "ca.crt", folder / "kubeconfig"
    write_kubeconfig(kubeconfig, url, authority, ADMIN.token)
    return Server(name, url, ADMIN.token, authority, kubeconfig, folder)


_TETHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    raise SystemExit("the process that started this server has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Makes the kernel kill this process when its parent ends (1 is PR_SET_PDEATHSIG), then executes the
server.
"""


def start_tethered(
    command: Sequence[str], folder: Path, name: str, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a program of a server with a tether; `name` is the name of its log."""
    return _start(command, folder, folder / "logs" / f"{name}.log", tethered=True, stdin=stdin)


def _start(
    command: Sequence[str], folder: Path, log: Path, *, tethered: bool, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    if tethered:
        command = (sys.executable, "-S", "-c", _TETHER, str(os.getpid()), *command)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd=folder,
            env=commands.module_environment(),
        )


def wait_ready(server: Server, processes: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
    """Wait until the server is ready; raises `ServerFailed` if a process ends or the deadline passes."""
    deadline = time.monotonic() + _READY_SECONDS
    while not is_ready(server):
        for process in processes:
            if process.poll() is not None:
                raise ServerFailed(f"{server.name} ended with {process.returncode}:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise ServerFailed(f"{server.name} was not ready within {_READY_SECONDS:.0f} s:\n{tail(log)}")
        time.sleep(0.05)


def is_ready(server: Server) -> bool:
    """True if /readyz answers ok."""
    if not server.ca_file.exists():
        return False
    try:
        context = ssl.create_default_context(cafile=str(server.ca_file))
        headers = {"Authorization": f"Bearer {server.token}"}
        request = urllib.request.Request(f"{server.url}/readyz", headers=headers)
        with urllib.request.urlopen(request, context=context, timeout=5) as answer:
            body: bytes = answer.read()
            return body.strip() == b"ok"
    except (urllib.error.URLError, OSError, ssl.SSLError):
        return False


def tail(log: Path) -> str:
    """The last lines of a log, for a message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "(no log)"


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill it if it does not end within ten seconds."""
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
