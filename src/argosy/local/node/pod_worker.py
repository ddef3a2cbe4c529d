"""Runs one pod from its binding to its removal: the API side of a shim.

A worker compares the pod object with the state that the shim reports and takes one step at a time. It can
start at any point of a pod's life, so a restarted agent starts one worker per pod.
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
from argosy.local.node.checkpoint_images import ImageError
from argosy.local.node.environment import ConfigError
from argosy.local.node.pod_state import PodState, containers_after_loss, read_state, write_state
from argosy.local.node.pod_status import PodFailure, StatusContext, pod_status, status_patch
from argosy.local.node.pod_types import Pod
from argosy.local.node.runspec import RunSpec
from argosy.local.node.shim_manager import ShimEvent, ShimManager, has_shim
from argosy.local.node.sysctls import SysctlForbiddenError
from argosy.local.node.volumes import VolumeError

log = Logger(__name__)

_STOP_RETRY_SECONDS = 0.02
_RETRY_SECONDS = (0.2, 1.0, 2.0, 5.0, 10.0)


class PodPreparer(Protocol):
    """What a worker needs of the agent: to prepare a pod and to release what it held."""

    async def prepare(self, pod: Pod) -> RunSpec: ...

    async def refresh(self, pod: Pod) -> float:
        """Update the pod's volumes; return the seconds until the next update is due."""
        ...

    def release(self, uid: str) -> None:
        """Release what the pod held; raises OSError while that is not possible yet, and may be repeated."""
        ...


class PodWorker:
    def __init__(
        self,
        pod: Pod,
        client: Client,
        recorder: Recorder,
        pods: ShimManager,
        preparation: PodPreparer,
        host_address: str,
        written: Callable[[Pod], None],
    ) -> None:
        self.pod = pod
        self.state: PodState | None = None
        self._client = client
        self._recorder = recorder
        self._shims = pods
        self._preparer = preparation
        self._host_address = host_address
        self._on_status_written = written
        self._wake = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._address = pod.status.pod_ip
        self._waiting: tuple[str, str] | None = None
        self._failure: PodFailure | None = None
        self._stop_deadline: float | None = None
        self._released = False
        self._last_status: Json | None = None
        self._failures = 0
        self._deleted = False
        self._removal_at: float | None = None
        self._refresh_at = 0.0
        self._recorded_starts: set[tuple[str, int]] = set()
        self._wake.set()

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def update(self, pod: Pod) -> None:
        """Take over a newer version of the pod."""
        if _is_newer(pod, self.pod):
            self.pod = pod
            self._wake.set()

    def mark_deleted(self) -> None:
        """The pod's object was deleted: kill its processes without a grace period."""
        self._deleted = True
        self._wake.set()

    def refresh_volumes(self) -> None:
        """Update the volumes soon: an object that one of them shows may have changed."""
        self._refresh_at = 0.0
        self._wake.set()

    async def run(self) -> None:
        try:
            while True:
                pause = await self._step_with_retry()
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

    async def _step_with_retry(self) -> float:
        """Take one step, with backoff after errors; return seconds to wait, negative if the pod is done."""
        self._wake.clear()
        try:
            pause = await self._step()
            self._failures = 0
        except (NotFound, Conflict):
            self._deleted = True
            pause = 0.0
        except (ApiError, OSError, RuntimeError) as error:
            pause = _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
            self._failures += 1
            log.warning("a step of a pod failed", pod=self._name(), error=str(error) or repr(error))
        return pause

    async def _step(self) -> float:
        if self._deleted:
            return await self._remove()
        if self.pod.metadata.deletion_timestamp is not None:
            return await self._terminate()
        if self.pod.finished and not self._is_following():
            await self._release()
            return 3600.0
        if not self._is_following() and not (self.state and self.state["finished"]):
            return await self._ensure_started()
        await self._check_deadline()
        await self._write_status()
        if self.state and self.state["finished"]:
            await self._release()
            return 3600.0
        return await self._refresh_if_due()

    async def _ensure_started(self) -> float:
        """Start the pod's shim; after a restart of the agent, find one that runs, has ended or was lost."""
        folder = self._shims.pod_folder(self.uid)
        before = read_state(folder)
        if has_shim(folder):
            self._follow()
            return 3600.0
        if before is not None and before["finished"] and not before["error"]:
            self.state = before
            return 0.0
        if before is not None and self.pod.spec.restart_policy == "Never" and before["containers"]:
            before["containers"] = containers_after_loss(before)
            before["finished"] = True
            write_state(folder, before)
            self.state = before
            return 0.0
        try:
            runspec = await self._preparer.prepare(self.pod)
        except ConfigError as error:
            return await self._wait_and_retry(
                "CreateContainerConfigError", str(error), "Failed", f"Error: {error}"
            )
        except ImageError as error:
            return await self._wait_and_retry("ErrImagePull", str(error), "Failed", f"Error: {error}")
        except VolumeError as error:
            return await self._wait_and_retry("ContainerCreating", "", "FailedMount", str(error))
        except SysctlForbiddenError as error:
            return await self._reject("SysctlForbidden", str(error))
        self._waiting, self._address = None, runspec["address"]
        if before is None:
            self._record_host_root(runspec)
        await self._shims.start(runspec)
        self._follow()
        return 3600.0

    async def _wait_and_retry(self, reason: str, message: str, event: str, text: str) -> float:
        self._recorder.event(self.pod, "Warning", event, text)
        self._waiting = (reason, message)
        await self._write_status()
        self._failures += 1
        return _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]

    async def _reject(self, reason: str, message: str) -> float:
        """Fail a pod that this node will never run."""
        self._event("Warning", reason, message)
        self._failure = PodFailure(reason, f"Pod was rejected: {message}")
        await self._write_status()
        return 0.0

    async def _terminate(self) -> float:
        grace = self.pod.metadata.deletion_grace_period_seconds
        grace = 30 if grace is None else grace
        if self._following is None and has_shim(self._shims.pod_folder(self.uid)):
            self._follow()
        if self._is_following():
            ends = time.monotonic() + grace
            if self._stop_deadline is None or ends < self._stop_deadline - 0.5:
                if self._stop_deadline is None:
                    for container in self.pod.spec.containers:
                        self._event("Normal", "Killing", f"Stopping container {container.name}")
                self._stop_deadline = ends
                if not await self._shims.stop(self.uid, grace):
                    self._stop_deadline = float("inf")  # its shim is starting or has just ended: try again
                    return _STOP_RETRY_SECONDS
            await self._write_status()
            return 3600.0
        if self.state is None:
            self.state = read_state(self._shims.pod_folder(self.uid))
        if self.state and not self.pod.finished:
            await self._write_status()
        await self._client.delete(
            Pod, self.pod.metadata.name, self.pod.metadata.namespace, uid=self.uid, grace_seconds=0
        )
        self._deleted = True
        return await self._remove()

    async def _remove(self) -> float:
        """Kill what runs and remove the pod's folder; its logs are kept for the retention period."""
        if self._is_following() or has_shim(self._shims.pod_folder(self.uid)):
            if self._following is None:
                self._follow()
            await self._shims.stop(self.uid, 0)
            return 1.0 if self._is_following() else 0.0
        await self._release()
        if self._removal_at is None:
            self._removal_at = time.monotonic() + self._shims.log_retention
        left = self._removal_at - time.monotonic()
        if left > 0 and self._shims.has_logs(self.uid):
            return left
        await self._shims.clear(self.uid, keep_logs=False)
        return -1.0

    async def _release(self) -> None:
        if not self._released:
            self._preparer.release(self.uid)
            await self._shims.clear(self.uid, keep_logs=True)
            self._released = True

    async def _check_deadline(self) -> None:
        limit, started = self.pod.spec.active_deadline_seconds, self.pod.status.start_time
        if limit is None or started is None or self._failure or not self._is_following():
            return
        if (datetime.now(UTC) - started).total_seconds() >= limit:
            self._failure = PodFailure(
                "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
            )
            self._event("Normal", "DeadlineExceeded", self._failure.message)
            await self._shims.stop(self.uid, self.pod.spec.termination_grace_period_seconds)

    async def _refresh_if_due(self) -> float:
        now = time.monotonic()
        pause = 3600.0
        if (
            self._is_following()
            and self._failure is None
            and self.pod.spec.active_deadline_seconds is not None
        ):
            started = self.pod.status.start_time or datetime.now(UTC)
            left = self.pod.spec.active_deadline_seconds - (datetime.now(UTC) - started).total_seconds()
            pause = max(0.05, left)
        if not self.pod.spec.volumes or not self._is_following():
            return pause
        if now >= self._refresh_at:
            try:
                self._refresh_at = now + await self._preparer.refresh(self.pod)
            except (ConfigError, VolumeError):  # deleted since the pod started: keep the old content
                self._refresh_at = now + 60.0
        return min(pause, max(0.05, self._refresh_at - now))

    async def _write_status(self) -> None:
        if self.state is None and self._waiting is None and self._failure is None:
            return
        if self._failure and not self._is_over():
            return  # wait until its containers have ended
        situation = StatusContext(
            address=self._address or (self.state["address"] if self.state else ""),
            host_address=self._host_address,
            now=datetime.now(UTC),
            waiting=self._waiting,
            failure=self._failure,
        )
        if self.state:
            self._record_starts(self.state)
        status = pod_status(self.pod, self.state, situation)
        if status == self._last_status:
            return
        if self._waiting is None and self._failure is None and _is_only_creating(status):
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
        self._last_status = status
        if _is_newer(written, self.pod):
            if written.spec != self.pod.spec or written.metadata.deletion_timestamp is not None:
                self._wake.set()  # changed meanwhile: the watch will not deliver a newer version
            self.pod = written
        self._on_status_written(written)

    def _record_host_root(self, runspec: RunSpec) -> None:
        """Record once, before the first start, which images stand for this machine's root file system."""
        configs = runspec["containers"]
        plain = {config["name"] for config in configs if config["root"] == "/" and not config["restore"]}
        images = sorted({c.image for c in self.pod.every_container if c.name in plain and c.image})
        if images:
            named = ", ".join(f'"{image}"' for image in images)
            self._event(
                "Normal",
                "ImageNotPulled",
                f"No image is pulled here: {named} runs on this machine's own root file system; "
                "`argosy up --image NAME=DIR` gives an image a folder",
            )

    def _record_starts(self, state: PodState) -> None:
        for name, entry in state["containers"].items():
            key = (name, entry["restarts"])
            if entry["running"] and key not in self._recorded_starts:
                self._recorded_starts.add(key)
                self._event("Normal", "Started", f"Started container {name}")

    def _is_following(self) -> bool:
        return self._following is not None and not self._following.done()

    def _is_over(self) -> bool:
        return not self._is_following() or bool(self.state and self.state["finished"])

    def _follow(self) -> None:
        self._following = asyncio.get_running_loop().create_task(
            self._shims.follow(self.uid, self._on_state, self._on_event)
        )
        self._following.add_done_callback(lambda _: self._on_shim_exit())

    def _on_state(self, state: PodState) -> None:
        self.state = state
        self._wake.set()

    def _on_event(self, event: ShimEvent) -> None:
        self._event("Warning" if event.type == "Warning" else "Normal", event.reason, event.message)

    def _on_shim_exit(self) -> None:
        state = self.state
        if state and state["finished"] and state["error"]:
            self._event("Warning", "FailedCreatePodSandBox", state["error"])
            self.state, self._failures = None, self._failures + 1
        self._wake.set()

    def _event(self, type: str, reason: str, message: str) -> None:
        self._recorder.event(self.pod, "Warning" if type == "Warning" else "Normal", reason, message)

    def _name(self) -> str:
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def _is_newer(pod: Pod, current: Pod) -> bool:
    return int(pod.metadata.resource_version or 0) > int(current.metadata.resource_version or 0)


def _is_only_creating(status: Json) -> bool:
    """Return True if containers are being created without problems: the next state follows shortly."""
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
