"""The first process of a pod: creates the pod's namespaces, runs its containers and reports their state.

It depends on no other process: agent, zygote and API server may restart. A lock on the pod's folder, taken by
the zygote before it forks, ensures that a pod has at most one shim and shows whether it has one. When the
shim exits, the kernel ends what is left in the pod's PID namespace. Standard library only.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import time
from pathlib import Path

from argosy.local.node import container_process, kernel, lifecycle, network, pod_state, shim_socket
from argosy.local.node.container_supervisor import ContainerSupervisor
from argosy.local.node.event_loop import EventLoop, Timer
from argosy.local.node.pod_context import PodContext
from argosy.local.node.runspec import RUNSPEC_FILE, RunSpec
from argosy.local.node.shim_socket import ShimConnection, ShimRequest
from argosy.local.node.spawn import StartError
from argosy.local.procfs import start_time


def main(folder: Path) -> None:
    """Run the pod described in a folder. The calling process is already PID 1 of a new PID namespace."""
    # The host's /proc is still mounted: it shows this process's pid outside the pod.
    pid = int(Path("/proc/self").readlink().name)
    runspec: RunSpec = json.loads((folder / RUNSPEC_FILE).read_bytes())
    previous = pod_state.read_state(folder)
    state = pod_state.PodState(
        pid=pid,
        start_time=start_time("self") or 0,
        address=runspec["address"],
        containers={},
        finished=False,
        stopping=False,
        error="",
        notes=[],
    )
    pod_state.write_state(folder, {**state, "containers": previous["containers"] if previous else {}})
    try:
        _enter_namespaces(runspec, folder)
    except (OSError, KeyError) as error:
        pod_state.write_state(folder, {**state, "error": str(error), "finished": True})
        return
    PodSupervisor(runspec, folder, state, previous).run()


def take_lock(folder: Path) -> int:
    """Lock the pod's folder; the lock is held while the descriptor or an inherited copy is open."""
    lock = os.open(folder / pod_state.LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _enter_namespaces(runspec: RunSpec, folder: Path) -> None:
    if runspec["network"]:
        network.set_up_pod_network(runspec["network"])
        _allow_ping(rootless=runspec["rootless"])
    kernel.unshare(kernel.NEW_MOUNT | kernel.NEW_UTS | (0 if runspec["host_ipc"] else kernel.NEW_IPC))
    kernel.mount("none", "/", flags=kernel.PRIVATE | kernel.RECURSIVE)
    kernel.mount("proc", "/proc", "proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
    socket.sethostname(runspec["hostname"])
    (folder / "shm").mkdir(exist_ok=True)
    kernel.mount("tmpfs", str(folder / "shm"), "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=1777")
    for path, size in runspec["memory_volumes"].items():
        kernel.mount("tmpfs", path, "tmpfs", 0, f"mode=777,size={size}" if size else "mode=777")
    for path, value in runspec["sysctls"].items():
        Path("/proc/sys", path).write_text(value)


def _allow_ping(*, rootless: bool) -> None:
    """Allow all groups of the pod to send ICMP echo requests without NET_RAW."""
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 0" if rootless else "0 2147483647")


class PodSupervisor:
    def __init__(
        self, runspec: RunSpec, folder: Path, state: pod_state.PodState, previous: pod_state.PodState | None
    ) -> None:
        self._runspec = runspec
        self._folder = folder
        self._state = state
        self._loop = EventLoop()
        context = PodContext(runspec, folder, self._loop, self._schedule_advance, self._record_event)
        earlier = pod_state.containers_after_loss(previous) if previous else {}
        self._containers = {
            config["name"]: ContainerSupervisor(config, context, earlier.get(config["name"]))
            for config in runspec["containers"]
        }
        state["containers"] = {name: container.state for name, container in self._containers.items()}
        self._server = shim_socket.ShimServer(self._loop, shim_socket.listen(folder), self._handle)
        self._grace = runspec["grace"]
        self._deadline = 0.0
        self._advancing: Timer | None = None
        self._published = ""

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._stop(self._runspec["grace"]))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._schedule_advance()
        self._loop.run()
        self._state["finished"] = True
        self._publish()
        self._server.close()

    def _schedule_advance(self) -> None:
        """Advance the pod soon, once for all changes that happen at the same time."""
        if self._advancing is None:
            self._advancing = self._loop.call_later(0, self._advance)

    def _advance(self) -> None:
        self._advancing = None
        if self._state["stopping"]:
            self._stop_containers(max(0.0, self._deadline - time.monotonic()))
        elif lifecycle.is_pod_over(self._runspec, self._state["containers"]):
            self._stop_containers(self._runspec["grace"])
        else:
            self._start_containers()
        self._publish()

    def _start_containers(self) -> None:
        for config in lifecycle.containers_to_start(self._runspec, self._state["containers"]):
            container = self._containers[config["name"]]
            held_up = container.restart_not_before - time.monotonic()
            if held_up > 0:
                container.report_backoff()
                self._loop.call_later(held_up + 0.001, self._schedule_advance)
            elif not container.restoring:
                container.start()

    def _stop_containers(self, grace: float) -> None:
        """Stop main and init containers first, then sidecars from last to first; then end the loop."""
        running = [container for container in self._containers.values() if container.state["running"]]
        if not running:
            self._loop.stop()
            return
        others = [container for container in running if container.config["kind"] != "sidecar"]
        for container in others:
            if not container.stopping:
                container.stop(grace)
        if not others:
            name = lifecycle.next_sidecar_to_stop(self._runspec["containers"], self._state["containers"])
            if name and not self._containers[name].stopping:
                self._containers[name].stop(grace)

    def _stop(self, grace: float) -> None:
        self._deadline = time.monotonic() + grace
        if self._state["stopping"] or grace <= 0:
            for container in self._containers.values():
                if container.state["running"] and (container.stopping or grace <= 0):
                    container.stop(grace)
        self._state["stopping"] = True
        self._schedule_advance()

    def _publish(self) -> None:
        text = json.dumps(self._state)
        if text == self._published:
            return
        self._published = text
        pod_state.replace_file(self._folder / pod_state.STATE_FILE, text.encode())
        line = b'{"report": ' + text.encode() + b"}\n"
        for connection in list(self._server.connections):
            if connection.watching:
                connection.send_bytes(line)

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        event: dict[str, object] = {"event": {"type": kind, "reason": reason, "message": message}}
        for connection in list(self._server.connections):
            if connection.watching:
                connection.send(event)

    def _handle(self, connection: ShimConnection, request: ShimRequest, descriptors: list[int]) -> None:
        operation = request["op"]
        container = self._containers.get(request.get("container", ""))
        if operation == "watch":
            connection.watching = True
            connection.send({"report": self._state})
        elif operation == "stop":
            connection.send({"ok": True})
            self._stop(request["grace"])
        elif operation == "signal" and container:
            container.signal(request["signal"])
            connection.send({"ok": True})
        elif operation == "exec" and container:
            self._exec(connection, container, request, descriptors)
        elif operation == "checkpoint" and container:
            self._checkpoint(connection, container, request)
        elif operation == "attach" and container:
            self._attach(connection, container)
        else:
            connection.send({"error": f"no container {request.get('container')} for {operation}"})
        for descriptor in descriptors:
            os.close(descriptor)

    def _exec(
        self,
        connection: ShimConnection,
        container: ContainerSupervisor,
        request: ShimRequest,
        descriptors: list[int],
    ) -> None:
        running = container.running
        if running is None:
            connection.send({"error": f"container {container.name} is not running"})
            return
        try:
            pid, terminal = container_process.execute(
                running, request["argv"], dict(enumerate(descriptors)), tty=request.get("tty", False)
            )
        except (StartError, OSError) as error:
            connection.send({"failed": str(error)})
            return
        if terminal is None:
            connection.send({"started": pid})
        else:
            connection.send_descriptor({"started": pid}, terminal)
            os.close(terminal)

        def ended(status: int) -> None:
            connection.send({"exit": os.waitstatus_to_exitcode(status)})
            connection.close()

        self._loop.on_exit(pid, ended)

    def _checkpoint(
        self, connection: ShimConnection, container: ContainerSupervisor, request: ShimRequest
    ) -> None:
        """Answer when the checkpoint is complete; nobody gets one whose client has left."""
        target = Path(request["target"])
        closed: list[bool] = []
        connection.on_close = lambda: closed.append(True)

        def done(problem: str) -> None:
            if closed:
                target.unlink(missing_ok=True)
            connection.send({"error": problem} if problem else {"ok": True})

        container.checkpoint(target, Path(request["criu"]), request["image"], done)

    def _attach(self, connection: ShimConnection, container: ContainerSupervisor) -> None:
        def output(stream: str, data: bytes) -> None:
            number = shim_socket.STDOUT if stream == "stdout" else shim_socket.STDERR
            connection.send_bytes(shim_socket.encode_frame(number, data))

        def received(stream: int, data: bytes) -> None:
            if stream == shim_socket.STDIN:
                container.write_stdin(data)
            elif stream == shim_socket.RESIZE and container.terminal is not None:
                width, height = json.loads(data)
                container_process.resize_terminal(container.terminal, width, height)
            elif stream == shim_socket.CLOSE:
                container.close_stdin()

        def closed() -> None:
            if output in container.listeners:
                container.listeners.remove(output)
            if container.config["stdin_once"]:
                container.close_stdin()

        connection.send({"attached": container.name, "tty": container.config["tty"]})
        connection.on_frame, connection.on_close = received, closed
        container.listeners.append(output)
