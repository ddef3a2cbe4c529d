"""One pod of one of our nodes, from the moment it is bound until it is gone: the API's side of a shim.

A worker is a loop that compares what the API wants with what the shim reports and makes one step at a time;
it can be started at any point of a pod's life, so an agent that comes back simply starts one per pod.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from argosy.engine.client import Client, PatchType
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger
from argosy.kinds.meta import Json
from argosy.local.node.environment import ConfigError
from argosy.local.node.kinds import Pod
from argosy.local.node.pod_state import Report, after_loss, read, write
from argosy.local.node.pod_status import Outcome, Situation, pod_status, status_patch
from argosy.local.node.runspec import Launch
from argosy.local.node.shim_manager import Pods, ShimEvent, alive
from argosy.local.node.sysctls import SysctlForbiddenError
from argosy.local.node.volumes import VolumeError

log = Logger(__name__)

_SOON = 0.02
_RETRY = (0.2, 1.0, 2.0, 5.0, 10.0)


class Preparation(Protocol):
    """What a worker needs of the agent to make a pod ready and to give back what it held."""

    async def prepare(self, pod: Pod) -> Launch: ...

    async def refresh(self, pod: Pod) -> float:
        """Bring volumes up to date; seconds until that should be done again."""
        ...

    def release(self, uid: str) -> None:
        """Give back what the pod held; raises OSError while that cannot be done, and may be called again."""
        ...


class Worker:
    def __init__(
        self,
        pod: Pod,
        client: Client,
        recorder: Recorder,
        pods: Pods,
        preparation: Preparation,
        host_address: str,
        written: Callable[[Pod], None],
    ) -> None:
        self.pod = pod
        self.report: Report | None = None
        self._client = client
        self._recorder = recorder
        self._pods = pods
        self._preparation = preparation
        self._host_address = host_address
        self._written_pod = written
        self._wake = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._address = pod.status.pod_ip
        self._waiting: tuple[str, str] | None = None
        self._outcome: Outcome | None = None
        self._stop_sent: float | None = None
        self._cleared = False
        self._last: Json | None = None
        self._failures = 0
        self._gone = False
        self._removal_at: float | None = None
        self._refresh_at = 0.0
        self._started_containers: set[tuple[str, int]] = set()
        self._wake.set()

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def update(self, pod: Pod) -> None:
        """A newer version of the pod."""
        if _newer(pod, self.pod):
            self.pod = pod
            self._wake.set()

    def vanish(self) -> None:
        """The pod's object is gone: end its processes without ceremony."""
        self._gone = True
        self._wake.set()

    def content_changed(self) -> None:
        """Something that a volume shows may be different now."""
        self._refresh_at = 0.0
        self._wake.set()

    async def run(self) -> None:
        try:
            while True:
                pause = await self._guarded_step()
                if pause < 0:
                    return
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            if self._following:
                self._following.cancel()

    async def _guarded_step(self) -> float:
        """One step; what goes wrong is tried again, later each time. Negative when the pod is done with."""
        self._wake.clear()
        try:
            pause = await self._step()
            self._failures = 0
        except (NotFound, Conflict):
            self._gone = True
            pause = 0.0
        except (ApiError, OSError, RuntimeError) as error:
            pause = _RETRY[min(self._failures, len(_RETRY) - 1)]
            self._failures += 1
            log.warning("a step of a pod failed", pod=self._name(), error=str(error) or repr(error))
        return pause

    async def _step(self) -> float:
        if self._gone:
            return await self._bury()
        if self.pod.metadata.deletion_timestamp is not None:
            return await self._terminate()
        if self.pod.finished and not self._running():
            await self._clean()
            return 3600.0
        if not self._running() and not (self.report and self.report["finished"]):
            return await self._begin()
        await self._check_deadline()
        await self._write_status()
        if self.report and self.report["finished"]:
            await self._clean()
            return 3600.0
        return await self._keep_fresh()

    async def _begin(self) -> float:
        """Launch, or after an agent's restart find that it has been launched, or lost."""
        folder = self._pods.of(self.uid)
        before = read(folder)
        if alive(folder):
            self._follow()
            return 3600.0
        if before is not None and before["finished"] and not before["error"]:
            self.report = before
            return 0.0
        if before is not None and self.pod.spec.restart_policy == "Never" and before["containers"]:
            before["containers"] = after_loss(before)
            before["finished"] = True
            write(folder, before)
            self.report = before
            return 0.0
        try:
            launch = await self._preparation.prepare(self.pod)
        except ConfigError as error:
            return await self._hold_up("CreateContainerConfigError", str(error), "Failed", f"Error: {error}")
        except VolumeError as error:
            return await self._hold_up("ContainerCreating", "", "FailedMount", str(error))
        except SysctlForbiddenError as error:
            return await self._reject("SysctlForbidden", str(error))
        self._waiting, self._address = None, launch["address"]
        if before is None:
            self._tell_host_root(launch)
        await self._pods.start(launch)
        self._follow()
        return 3600.0

    async def _hold_up(self, reason: str, message: str, event: str, text: str) -> float:
        self._recorder.event(self.pod, "Warning", event, text)
        self._waiting = (reason, message)
        await self._write_status()
        self._failures += 1
        return _RETRY[min(self._failures, len(_RETRY) - 1)]

    async def _reject(self, reason: str, message: str) -> float:
        """Fail a pod that this node will never run."""
        self._event("Warning", reason, message)
        self._outcome = Outcome(reason, f"Pod was rejected: {message}")
        await self._write_status()
        return 0.0

    async def _terminate(self) -> float:
        grace = self.pod.metadata.deletion_grace_period_seconds
        grace = 30 if grace is None else grace
        if self._following is None and alive(self._pods.of(self.uid)):
            self._follow()
        if self._running():
            ends = time.monotonic() + grace
            if self._stop_sent is None or ends < self._stop_sent - 0.5:
                if self._stop_sent is None:
                    for container in self.pod.spec.containers:
                        self._event("Normal", "Killing", f"Stopping container {container.name}")
                self._stop_sent = ends
                if not await self._pods.stop(self.uid, grace):
                    self._stop_sent = float("inf")  # it is only beginning, or has just ended: see again
                    return _SOON
            await self._write_status()
            return 3600.0
        if self.report is None:
            self.report = read(self._pods.of(self.uid))
        if self.report and not self.pod.finished:
            await self._write_status()
        await self._client.delete(
            Pod, self.pod.metadata.name, self.pod.metadata.namespace, uid=self.uid, grace_seconds=0
        )
        self._gone = True
        return await self._bury()

    async def _bury(self) -> float:
        """End what runs at once and remove every trace; its logs only when nobody will come for them."""
        if self._running() or alive(self._pods.of(self.uid)):
            if self._following is None:
                self._follow()
            await self._pods.stop(self.uid, 0)
            return 1.0 if self._running() else 0.0
        await self._clean()
        if self._removal_at is None:
            self._removal_at = time.monotonic() + self._pods.log_patience
        left = self._removal_at - time.monotonic()
        if left > 0 and self._pods.has_logs(self.uid):
            return left
        await self._pods.clear(self.uid, keep_logs=False)
        return -1.0

    async def _clean(self) -> None:
        if not self._cleared:
            self._preparation.release(self.uid)
            await self._pods.clear(self.uid, keep_logs=True)
            self._cleared = True

    async def _check_deadline(self) -> None:
        limit, started = self.pod.spec.active_deadline_seconds, self.pod.status.start_time
        if limit is None or started is None or self._outcome or not self._running():
            return
        if (datetime.now(UTC) - started).total_seconds() >= limit:
            self._outcome = Outcome(
                "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
            )
            self._event("Normal", "DeadlineExceeded", self._outcome.message)
            await self._pods.stop(self.uid, self.pod.spec.termination_grace_period_seconds)

    async def _keep_fresh(self) -> float:
        now = time.monotonic()
        pause = 3600.0
        if self._running() and self._outcome is None and self.pod.spec.active_deadline_seconds is not None:
            started = self.pod.status.start_time or datetime.now(UTC)
            left = self.pod.spec.active_deadline_seconds - (datetime.now(UTC) - started).total_seconds()
            pause = max(0.05, left)
        if not self.pod.spec.volumes or not self._running():
            return pause
        if now >= self._refresh_at:
            try:
                self._refresh_at = now + await self._preparation.refresh(self.pod)
            except (ConfigError, VolumeError):  # it was there at the start; keep showing what it was
                self._refresh_at = now + 60.0
        return min(pause, max(0.05, self._refresh_at - now))

    async def _write_status(self) -> None:
        if self.report is None and self._waiting is None and self._outcome is None:
            return
        if self._outcome and not self._over():
            return  # its containers are ending: that they ended is not yet the pod's end
        situation = Situation(
            address=self._address or (self.report["address"] if self.report else ""),
            host_address=self._host_address,
            now=datetime.now(UTC),
            waiting=self._waiting,
            outcome=self._outcome,
        )
        if self.report:
            self._tell_starts(self.report)
        status = pod_status(self.pod, self.report, situation)
        if status == self._last:
            return
        if self._waiting is None and self._outcome is None and _only_creating(status):
            return
        patch: Json = {"metadata": {"uid": self.uid}, "status": status_patch(self.pod, status)}
        written = await self._client.patch(
            Pod,
            self.pod.metadata.name,
            patch,
            self.pod.metadata.namespace,
            type=PatchType.STRATEGIC,
            subresource="status",
        )
        self._last = status
        if _newer(written, self.pod):
            if written.spec != self.pod.spec or written.metadata.deletion_timestamp is not None:
                self._wake.set()  # changed meanwhile: the watch brings only what is older than this
            self.pod = written
        self._written_pod(written)

    def _tell_host_root(self, launch: Launch) -> None:
        """Say once, before its first start, which images are this machine's own root file system."""
        plain = {plan["name"] for plan in launch["containers"] if plan["root"] == "/"}
        images = sorted({c.image for c in self.pod.every_container if c.name in plain and c.image})
        if images:
            named = ", ".join(f'"{image}"' for image in images)
            self._event(
                "Normal",
                "ImageNotPulled",
                f"No image is pulled here: {named} runs on this machine's own root file system; "
                "`argosy up --image NAME=DIR` gives an image a folder",
            )

    def _tell_starts(self, report: Report) -> None:
        for name, entry in report["containers"].items():
            key = (name, entry["restarts"])
            if entry["running"] and key not in self._started_containers:
                self._started_containers.add(key)
                self._event("Normal", "Started", f"Started container {name}")

    def _running(self) -> bool:
        return self._following is not None and not self._following.done()

    def _over(self) -> bool:
        return not self._running() or bool(self.report and self.report["finished"])

    def _follow(self) -> None:
        self._following = asyncio.get_running_loop().create_task(
            self._pods.follow(self.uid, self._reported, self._happened)
        )
        self._following.add_done_callback(lambda _: self._ended())

    def _reported(self, report: Report) -> None:
        self.report = report
        self._wake.set()

    def _happened(self, event: ShimEvent) -> None:
        self._event("Warning" if event.type == "Warning" else "Normal", event.reason, event.message)

    def _ended(self) -> None:
        report = self.report
        if report and report["finished"] and report["error"]:
            self._event("Warning", "FailedCreatePodSandBox", report["error"])
            self.report, self._failures = None, self._failures + 1
        self._wake.set()

    def _event(self, type: str, reason: str, message: str) -> None:
        self._recorder.event(self.pod, "Warning" if type == "Warning" else "Normal", reason, message)

    def _name(self) -> str:
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def _newer(pod: Pod, held: Pod) -> bool:
    return int(pod.metadata.resource_version or 0) > int(held.metadata.resource_version or 0)


def _only_creating(status: Json) -> bool:
    """Nothing has run yet and nothing is wrong: the next report follows within milliseconds."""
    entries = [status["containerStatuses"], status.get("initContainerStatuses", [])]
    return all(
        isinstance(entry, dict)
        and isinstance(entry["state"], dict)
        and "waiting" in entry["state"]
        and entry["state"]["waiting"] in ({"reason": "ContainerCreating"}, {"reason": "PodInitializing"})
        for group in entries
        if isinstance(group, list)
        for entry in group
    )
