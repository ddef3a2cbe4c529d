"""Run specs for tests of the node: small pods that run real processes, without an API server."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.local.node import capabilities, network, pod_state, shim_socket, zygote
from argosy.local.node.runspec import (
    RUNSPEC_FILE,
    Action,
    ContainerConfig,
    NetworkConfig,
    ProbeConfig,
    RunSpec,
)
from argosy.local.procfs import is_alive
from tests.support.waiting import wait_for


def container_config(name: str, script: str, **changes: object) -> ContainerConfig:
    """A container that runs a shell script; `changes` are fields of the plan."""
    plan = ContainerConfig(
        name=name,
        kind="main",
        root="/",
        argv=["/bin/sh", "-c", script],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
        cwd="/",
        mounts=[],
        uid=0,
        gid=0,
        groups=[],
        capabilities=capabilities.effective((), ()),
        privileged=False,
        no_new_privileges=True,
        read_only_root=False,
        devices=[],
        memory=None,
        cpu=None,
        tty=False,
        stdin=False,
        stdin_once=False,
        message_path="/dev/termination-log",
        message_from_logs=False,
        startup=None,
        readiness=None,
        liveness=None,
        post_start=None,
        pre_stop=None,
        stop_signal=15,
        restore="",
    )
    plan.update(changes)  # type: ignore[typeddict-item]  # fields by name, checked by the tests that use them
    return plan


def probe_config(action: Action, **changes: float) -> ProbeConfig:
    plan = ProbeConfig(
        action=action, initial_delay=0.0, period=0.1, timeout=1.0, successes=1, failures=3, grace=None
    )
    plan.update(changes)  # type: ignore[typeddict-item]  # as above
    return plan


def run_spec(*containers: ContainerConfig, **changes: object) -> RunSpec:
    """A pod in the host's network whose containers are never restarted."""
    plan = RunSpec(
        namespace="default",
        name="pod",
        uid=str(uuid.uuid4()),
        node="node-1",
        hostname="pod",
        restart_policy="Never",
        grace=5.0,
        network=None,
        host_ipc=False,
        share_pids=False,
        address="127.0.0.1",
        rootless=False,
        hidden=["/home", "/root"],
        visible=[],
        memory_volumes={},
        scratch_volumes=[],
        sysctls={},
        containers=list(containers),
        cgroup="",
        first_backoff=0.05,
        longest_backoff=0.4,
        log_bytes=1 << 20,
        criu="",
    )
    plan.update(changes)  # type: ignore[typeddict-item]  # as above
    return plan


class Stage:
    """A zygote for one test, and a folder for its pods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with (folder / "zygote.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "argosy.local.node.zygote", str(folder)],
                env=zygote.zygote_environment(),
                start_new_session=True,
                stdout=log,
                stderr=log,
            )
        wait_for((folder / shim_socket.ZYGOTE_SOCKET).exists)

    def run(self, runspec: RunSpec) -> Path:
        folder = self.folder / runspec["uid"]
        (folder / "etc").mkdir(parents=True, exist_ok=True)
        for name, text in (("hosts", "127.0.0.1 localhost\n"), ("hostname", "pod\n"), ("resolv.conf", "")):
            (folder / "etc" / name).write_text(text)
        (folder / RUNSPEC_FILE).write_text(json.dumps(runspec))
        with shim_socket.connect(self.folder, shim_socket.ZYGOTE_SOCKET) as client:
            client.sendall(f"{folder}\n".encode())
            answer = json.loads(client.makefile().readline())
        if "error" in answer:
            raise OSError(answer["error"])
        return folder

    def close(self) -> None:
        for path in self.folder.iterdir():
            state = pod_state.read_state(path) if path.is_dir() else None
            if state and is_alive(state["pid"], state["start_time"]):
                _kill(state["pid"])
        self.process.kill()
        self.process.wait()


def pod_network(bridge: str, address: str, uid: str, gateway: str) -> NetworkConfig:
    return NetworkConfig(
        bridge=bridge, link=network.link_name(uid), address=address, prefix=24, gateway=gateway, mtu=1500
    )


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    running = Stage(folder)
    try:
        yield running
    finally:
        running.close()


def finished(folder: Path, seconds: float = 60.0) -> pod_state.PodState:
    """Wait until a pod has ended; returns its last report."""

    def over() -> bool:
        state = pod_state.read_state(folder)
        return state is not None and state["finished"]

    wait_for(over, "the pod finishes", seconds)
    state = pod_state.read_state(folder)
    if state is None:
        raise FileNotFoundError(folder)
    return state


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
