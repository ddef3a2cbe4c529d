"""Runs a command in a container of a pod, by a WebSocket through the API server.

The API has no precondition for exec, so the pod is read before and afterwards. If another pod takes the name
in the moment between the first read and the exec, the command runs there: it has the same name and namespace,
but it may be anybody's who may create pods in that namespace. The second read finds this out, so an answer
with the status DONE is of the pod with the wanted uid. The effect of the command cannot be taken back; a
command for which that matters checks in the container where it runs.

A command that changes nothing (`Exec.read_only`) saves both reads. Whoever asks must be content with the
answer of another pod of that name: the pod may be gone a moment later anyway.

A command that prints without end must not keep the operator busy: only the end of its output is kept, and
after the first mebibyte it is read slowly, which makes the command wait.
"""

import asyncio

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, LeaseExpired, NotFound
from argosy.kinds.kubernetes import Pod
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import MAX_EXEC_SECONDS, MAX_OUTPUT_BYTES, Exec, ExecResult, ExecStatus

FAST_OUTPUT_BYTES = 1 << 20
"""Output of one command that is read as fast as it comes."""

SLOW_BYTES_PER_SECOND = 256 << 10
"""How fast the rest is read."""

MIN_PIECE_BYTES = 1 << 10
"""What a piece of output counts at least: many small ones cost as much time as a few large ones."""


class PodExec:
    """Runs commands, each within its time limit. Only the loss of the Lease is raised."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def run(self, namespace: str, action: Exec) -> ExecResult:
        output = _Output()
        seconds = min(action.timeout_seconds, MAX_EXEC_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                return await self._run(namespace, action, output)
        except LeaseExpired:
            raise
        except TimeoutError:
            status, message = ExecStatus.TIMED_OUT, f"did not end within {seconds:g} s"
        except ApiError as error:
            status, message = ExecStatus.NOT_REACHABLE, error.message or error.reason
        return output.result(action, status, message=truncate(message, MAX_MESSAGE_CHARS))

    async def _run(self, namespace: str, action: Exec, output: "_Output") -> ExecResult:
        if not action.read_only:
            pod = await self._find(namespace, action)
            if pod is None or _has_ended(pod):
                return _pod_gone(action, pod)
        try:
            exit_code = await self._client.exec(
                action.pod,
                namespace,
                action.command,
                container=action.container,
                stdin=action.stdin or None,
                on_stdout=output.stdout.add,
                on_stderr=output.stderr.add,
                pace=output.pace,
            )
        except LeaseExpired:
            raise
        except ApiError:
            pod = await self._find(namespace, action)
            if pod is None or _has_ended(pod):
                return _pod_gone(action, pod)
            raise
        if not action.read_only and await self._find(namespace, action) is None:
            return _pod_gone(action, None)
        return output.result(action, ExecStatus.DONE, exit_code)

    async def _find(self, namespace: str, action: Exec) -> Pod | None:
        """Return the pod with the uid of the action; None if there is none."""
        try:
            pod = await self._client.get(Pod, action.pod, namespace)
        except NotFound:
            return None
        return pod if pod.metadata.uid == action.uid else None


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _pod_gone(action: Exec, pod: Pod | None) -> ExecResult:
    why = f"pod {action.pod} has ended" if pod is not None else f"pod {action.pod} does not exist any more"
    return ExecResult(action.key, ExecStatus.POD_GONE, message=why)


class _Output:
    """The end of both outputs of a command, and how fast they may come."""

    def __init__(self) -> None:
        self.stdout = _Tail()
        self.stderr = _Tail()
        self._read = 0

    async def pace(self, size: int) -> None:
        """Wait if the command has printed much; meanwhile nothing more is read from it."""
        counted = max(size, MIN_PIECE_BYTES)
        self._read += counted
        if self._read > FAST_OUTPUT_BYTES:
            await asyncio.sleep(counted / SLOW_BYTES_PER_SECOND)

    def result(
        self, action: Exec, status: ExecStatus, exit_code: int | None = None, message: str = ""
    ) -> ExecResult:
        stdout, stderr = self.stdout.content, self.stderr.content
        return ExecResult(action.key, status, exit_code, stdout, stderr, message)


class _Tail:
    """Keeps the last bytes of an output."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    @property
    def content(self) -> bytes:
        return bytes(self._bytes)

    def add(self, chunk: bytes) -> None:
        self._bytes += chunk[-MAX_OUTPUT_BYTES:]
        del self._bytes[:-MAX_OUTPUT_BYTES]
