"""The first process of a pod: it makes the pod's namespaces, runs its containers to the end, and reports.

It needs nobody: agent, zygote and API server may die and come back. A lock on the pod's folder, taken by the
zygote before it forks, makes sure that there is never a second shim for the same pod and tells whether there
is one. When it leaves, the kernel ends whatever is left in the pod's PID namespace. Standard library only.
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
from argosy.local.node.container_supervisor import Box
from argosy.local.node.event_loop import Loop, Timer
from argosy.local.node.pod_context import Surroundings
from argosy.local.node.runspec import LAUNCH, Launch
from argosy.local.node.shim_socket import Connection, Request
from argosy.local.node.spawn import StartError


def main(folder: Path) -> None:
    """Run the pod described in a folder. The calling process is already PID 1 of a new PID namespace."""
    # The host's /proc is still mounted: it names us as the rest of the machine sees us.
    pid = int(Path("/proc/self").readlink().name)
    launch: Launch = json.loads((folder / LAUNCH).read_bytes())
    before = pod_state.read(folder)
    state = pod_state.Report(
        pid=pid,
        start_time=kernel.start_time("self"),
        address=launch["address"],
        containers={},
        finished=False,
        stopping=False,
        error="",
        notes=[],
    )
    pod_state.write(folder, {**state, "containers": before["containers"] if before else {}})
    try:
        _enter(launch, folder)
    except (OSError, KeyError) as error:
        pod_state.write(folder, {**state, "error": str(error), "finished": True})
        return
    Pod(launch, folder, state, before).run()


def take_lock(folder: Path) -> int:
    """The descriptor that means `this pod has a shim`, for as long as it or an inherited copy is open."""
    lock = os.open(folder / pod_state.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _enter(launch: Launch, folder: Path) -> None:
    if launch["network"]:
        network.join(launch["network"])
        _allow_ping(rootless=launch["rootless"])
    kernel.unshare(kernel.NEW_MOUNT | kernel.NEW_UTS | (0 if launch["host_ipc"] else kernel.NEW_IPC))
    kernel.mount("none", "/", flags=kernel.PRIVATE | kernel.RECURSIVE)
    kernel.mount("proc", "/proc", "proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
    socket.sethostname(launch["hostname"])
    (folder / "shm").mkdir(exist_ok=True)
    kernel.mount("tmpfs", str(folder / "shm"), "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "mode=1777")
    for path, size in launch["memory_volumes"].items():
        kernel.mount("tmpfs", path, "tmpfs", 0, f"mode=777,size={size}" if size else "mode=777")
    for path, value in launch["sysctls"].items():
        Path("/proc/sys", path).write_text(value)


def _allow_ping(*, rootless: bool) -> None:
    """Let every group of the pod send echo requests, which needs no NET_RAW then."""
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 0" if rootless else "0 2147483647")


class Pod:
    def __init__(
        self, launch: Launch, folder: Path, state: pod_state.Report, before: pod_state.Report | None
    ) -> None:
        self._launch = launch
        self._folder = folder
        self._state = state
        self._loop = Loop()
        around = Surroundings(launch, folder, self._loop, self._changed, self._announce)
        earlier = pod_state.after_loss(before) if before else {}
        self._boxes = {
            plan["name"]: Box(plan, around, earlier.get(plan["name"])) for plan in launch["containers"]
        }
        state["containers"] = {name: box.report for name, box in self._boxes.items()}
        self._server = shim_socket.Server(self._loop, shim_socket.listen(folder), self._handle)
        self._grace = launch["grace"]
        self._deadline = 0.0
        self._advancing: Timer | None = None
        self._written = ""

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._stop(self._launch["grace"]))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._changed()
        self._loop.run()
        self._state["finished"] = True
        self._publish()
        self._server.close()

    def _changed(self) -> None:
        """Something happened: decide soon, once for all that happens at the same time."""
        if self._advancing is None:
            self._advancing = self._loop.after(0, self._advance)

    def _advance(self) -> None:
        self._advancing = None
        if self._state["stopping"]:
            self._wind_down(max(0.0, self._deadline - time.monotonic()))
        elif lifecycle.over(self._launch, self._state["containers"]):
            self._wind_down(self._launch["grace"])
        else:
            self._start_containers()
        self._publish()

    def _start_containers(self) -> None:
        for plan in lifecycle.startable(self._launch, self._state["containers"]):
            box = self._boxes[plan["name"]]
            held_up = box.restart_not_before - time.monotonic()
            if held_up > 0:
                box.back_off()
                self._loop.after(held_up + 0.001, self._changed)
            else:
                box.start()

    def _wind_down(self, grace: float) -> None:
        """Main and init containers first, then sidecars from the last to the first; then leave."""
        running = [box for box in self._boxes.values() if box.report["running"]]
        if not running:
            self._loop.stop()
            return
        others = [box for box in running if box.plan["kind"] != "sidecar"]
        for box in others:
            if not box.stopping:
                box.stop(grace)
        if not others:
            name = lifecycle.sidecars_to_stop(self._launch["containers"], self._state["containers"])
            if name and not self._boxes[name].stopping:
                self._boxes[name].stop(grace)

    def _stop(self, grace: float) -> None:
        self._deadline = time.monotonic() + grace
        if self._state["stopping"] or grace <= 0:
            for box in self._boxes.values():
                if box.report["running"] and (box.stopping or grace <= 0):
                    box.stop(grace)
        self._state["stopping"] = True
        self._changed()

    def _publish(self) -> None:
        text = json.dumps(self._state)
        if text == self._written:
            return
        self._written = text
        pod_state.replace(self._folder / pod_state.FILE, text.encode())
        line = b'{"report": ' + text.encode() + b"}\n"
        for connection in list(self._server.connections):
            if connection.watching:
                connection.send_bytes(line)

    def _announce(self, kind: str, reason: str, message: str) -> None:
        event: dict[str, object] = {"event": {"type": kind, "reason": reason, "message": message}}
        for connection in list(self._server.connections):
            if connection.watching:
                connection.send(event)

    def _handle(self, connection: Connection, request: Request, descriptors: list[int]) -> None:
        operation = request["op"]
        box = self._boxes.get(request.get("container", ""))
        if operation == "watch":
            connection.watching = True
            connection.send({"report": self._state})
        elif operation == "stop":
            connection.send({"ok": True})
            self._stop(request["grace"])
        elif operation == "signal" and box:
            box.signal(request["signal"])
            connection.send({"ok": True})
        elif operation == "exec" and box:
            self._exec(connection, box, request, descriptors)
        elif operation == "attach" and box:
            self._attach(connection, box)
        else:
            connection.send({"error": f"no container {request.get('container')} for {operation}"})
        for descriptor in descriptors:
            os.close(descriptor)

    def _exec(self, connection: Connection, box: Box, request: Request, descriptors: list[int]) -> None:
        place = box.place
        if place is None:
            connection.send({"error": f"container {box.name} is not running"})
            return
        try:
            pid, terminal = container_process.execute(
                place, request["argv"], dict(enumerate(descriptors)), tty=request.get("tty", False)
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

    def _attach(self, connection: Connection, box: Box) -> None:
        def output(stream: str, data: bytes) -> None:
            number = shim_socket.STDOUT if stream == "stdout" else shim_socket.STDERR
            connection.send_bytes(shim_socket.frame(number, data))

        def received(stream: int, data: bytes) -> None:
            if stream == shim_socket.STDIN:
                box.write_stdin(data)
            elif stream == shim_socket.RESIZE and box.terminal is not None:
                width, height = json.loads(data)
                container_process.resize(box.terminal, width, height)
            elif stream == shim_socket.CLOSE:
                box.close_stdin()

        def closed() -> None:
            if output in box.listeners:
                box.listeners.remove(output)
            if box.plan["stdin_once"]:
                box.close_stdin()

        connection.send({"attached": box.name, "tty": box.plan["tty"]})
        connection.on_frame, connection.on_close = received, closed
        box.listeners.append(output)
