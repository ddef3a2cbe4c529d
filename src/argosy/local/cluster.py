"""Starts and stops the processes of a local control plane.

`start` is idempotent: running processes are kept, dead ones are started, and different options are rejected
with a hint how to change them. `stop` ends every process and pod; objects stay in the state folder unless
they are to be deleted, so that the next start continues with them. Imports little, so that the processes are
started before the caller loads an HTTP client to wait for them (`readiness.py`).
"""

import secrets
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from argosy.local.node import namespace_holder
from argosy.local.ports import Claim, claim, claim_first
from argosy.local.processes import Options, Process, Run, read_run, strays
from argosy.local.state import State
from argosy.local.supervisor import launch, stop_pods

DEFAULT_PORT = 6480
"""Tried first; if it is in use and no port was requested, any free port is used."""

_STOP_SECONDS = 60.0
_KILLED_SECONDS = 10.0
_IDENTITIES = {
    "admin": ("admin", ["system:masters"]),
    "controllers": ("system:kube-controller-manager", ["system:masters"]),
    "node": ("system:node-agent", ["system:masters"]),
    "operator": ("argosy-operator", ["system:masters"]),
}


class ClusterError(Exception):
    """The control plane could not be started; the message says why and which log to read."""


def start(state: State, options: Options) -> Run:
    """Create the keys, start the processes and return; `readiness.ready` waits until they serve."""
    state.create()
    with state.locked():
        running = read_run(state.run)
        if running is not None and running.supervisor.alive and state.prepared.exists():
            return _check_unchanged(running, options)
        for lost in strays(state.folder):  # on SIGTERM a supervisor would end the pods too
            lost.signal(signal.SIGKILL)
            lost.wait_gone(_KILLED_SECONDS)
        port, holder = _claim(options.port, running)
        options = msgspec.structs.replace(options, port=port)
        state.prepared.unlink(missing_ok=True)
        with holder:
            launched = launch(state, options, holder)
        try:
            _prepare(state, options.port)  # while the processes import their modules
            state.prepared.touch()
        except BaseException:
            launched.terminate()
            raise
        deadline = time.monotonic() + 10
        while (run := read_run(state.run)) is None or run.supervisor.pid != launched.pid:
            if launched.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(f"the supervisor did not start; see {state.logs / 'supervisor.log'}")
            time.sleep(0.005)
        return run


def stop(state: State, *, delete: bool = False) -> bool:
    """End every process and pod; return True if any was running."""
    if not state.folder.exists():
        return False
    with state.locked():
        run, processes = read_run(state.run), strays(state.folder)
        ran = bool(processes) or namespace_holder.find(state.pods) is not None
        for process in [run.supervisor] if run else processes[:1]:
            process.signal(signal.SIGTERM)
            if not process.wait_gone(_STOP_SECONDS):
                process.signal(signal.SIGKILL)
        _stop_processes(strays(state.folder))
        if ran or (state.pods / namespace_holder.HOLDER_FILE).exists():
            stop_pods(state)
        for record in (state.run, state.nodes):
            record.unlink(missing_ok=True)
    if delete:
        shutil.rmtree(state.folder)
    return ran


def _check_unchanged(running: Run, options: Options) -> Run:
    requested = msgspec.structs.replace(options, port=options.port or running.options.port)
    if requested != running.options:
        raise ClusterError(
            "the control plane is running with other settings; "
            "run `argosy down`, then `argosy up` with the new ones"
        )
    return running


def _stop_processes(processes: Sequence[Process]) -> None:
    """End components whose supervisor has died."""
    for process in processes:
        process.signal(signal.SIGTERM)
    for process in processes:
        if not process.wait_gone(10):
            process.signal(signal.SIGKILL)
            process.wait_gone(_KILLED_SECONDS)


def _claim(port: int, last: Run | None) -> Claim:
    if not port:
        return claim_first((*([last.options.port] if last else ()), DEFAULT_PORT))
    claimed = claim(port)
    if claimed is None:
        raise ClusterError(f"port {port} is in use by another program; leave --port out or give another")
    return claimed


def _prepare(state: State, port: int) -> None:
    """Write keys, tokens and kubeconfigs. Tokens are kept; files that depend on the port are rewritten."""
    from argosy.local.apiserver.kubeconfig import write_kubeconfig
    from argosy.local.apiserver.pki import ensure_kubelet_certificate, ensure_pki
    from argosy.local.node.egress import link_addresses
    from argosy.local.node.settings import Settings

    ensure_pki(state.folder, ["127.0.0.1", "10.96.0.1"])
    node_addresses = [Settings(state.folder).gateway, link_addresses(state.folder)[2]]
    ensure_kubelet_certificate(state.folder, node_addresses)
    tokens = _tokens(state.tokens)
    server, ca = f"https://127.0.0.1:{port}", state.pki / "ca.crt"
    for name, token in tokens.items():
        if name == "admin":
            write_kubeconfig(state.kubeconfig, server, ca, token, None)
        else:
            write_kubeconfig(state.kubeconfigs / name, server, ca, token, state.api_socket)


def _tokens(path: Path) -> dict[str, str]:
    """Return the token of each identity. The file, which the API server reads, is keyed by token."""
    try:
        stored = {
            str(entry["user"]): token for token, entry in msgspec.json.decode(path.read_bytes()).items()
        }
    except (FileNotFoundError, msgspec.DecodeError):
        stored = {}
    tokens = {name: stored.get(user) or secrets.token_urlsafe(32) for name, (user, _) in _IDENTITIES.items()}
    entries = {
        tokens[name]: {"user": user, "uid": f"argosy-{name}", "groups": groups}
        for name, (user, groups) in _IDENTITIES.items()
    }
    temporary = path.with_suffix(".new")
    temporary.touch(mode=0o600)
    temporary.write_bytes(msgspec.json.encode(entries))
    temporary.replace(path)
    return tokens
