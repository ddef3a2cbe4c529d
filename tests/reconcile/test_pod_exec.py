"""Tests for running one command, with a fake client and a fake clock."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, Forbidden, LeaseExpired, NotFound, Unavailable
from argosy.kinds.kubernetes import Pod, PodStatus
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import MAX_EXEC_SECONDS, MAX_OUTPUT_BYTES, Exec, ExecResult, ExecStatus
from argosy.reconcile.pod_exec import FAST_OUTPUT_BYTES, SLOW_BYTES_PER_SECOND, PodExec

pytestmark = pytest.mark.looptime

ACTION = Exec("check", "launcher", "u1", "main", ("sh", "-c", "exit 3"), timeout_seconds=5)


def pod(uid: str = "u1", phase: str = "Running") -> Pod:
    return Pod(ObjectMeta(name="launcher", namespace="home", uid=uid), status=PodStatus(phase=phase))


class FakeClient:
    """Answers reads of the pod in turn, the last one for ever, and runs one command."""

    def __init__(
        self,
        *pods: Pod | ApiError | None,
        command: int | ApiError = 3,
        seconds: float = 1.0,
        output: Sequence[bytes] = (),
    ) -> None:
        self.pods = list(pods)
        self.command = command
        self.seconds = seconds
        self.output = output
        self.executed: list[tuple[object, ...]] = []
        self.closed = 0

    async def get(self, kind: type[Pod], name: str, namespace: str) -> Pod:
        assert (kind, name, namespace) == (Pod, "launcher", "home")
        answer = self.pods.pop(0) if len(self.pods) > 1 else self.pods[0]
        if isinstance(answer, ApiError):
            raise answer
        if answer is None:
            raise NotFound(404, "NotFound", 'pods "launcher" not found')
        return answer

    async def exec(
        self,
        name: str,
        namespace: str,
        command: Sequence[str],
        *,
        container: str,
        stdin: bytes | None,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
        pace: Callable[[int], Awaitable[None]],
    ) -> int:
        self.executed.append((name, namespace, tuple(command), container, stdin))
        try:
            on_stderr(b"warning")
            for chunk in self.output:
                on_stdout(chunk)
                await pace(len(chunk))
            await asyncio.sleep(self.seconds)
        finally:
            self.closed += 1
        if isinstance(self.command, ApiError):
            raise self.command
        return self.command


async def run(client: FakeClient, action: Exec = ACTION) -> ExecResult:
    return await PodExec(cast("Client", client)).run("home", action)


BROKEN = Unavailable(0, "Unreachable", "the connection closed before the command ended")
GONE = "pod launcher does not exist any more"
ENDED = "pod launcher has ended"

RESULTS: dict[str, tuple[FakeClient, ExecStatus, int | None, str]] = {
    "the command ends: done with its exit code": (FakeClient(pod()), ExecStatus.DONE, 3, ""),
    "the pod ends with the command: done": (
        FakeClient(pod(), pod(phase="Succeeded"), command=0),
        ExecStatus.DONE,
        0,
        "",
    ),
    "no pod: gone": (FakeClient(None), ExecStatus.POD_GONE, None, GONE),
    "another pod of that name: gone": (FakeClient(pod("u2")), ExecStatus.POD_GONE, None, GONE),
    "the pod has ended: gone": (FakeClient(pod(phase="Failed")), ExecStatus.POD_GONE, None, ENDED),
    "the pod was replaced before the command: gone, whatever the other answered": (
        FakeClient(pod(), pod("u2"), command=0),
        ExecStatus.POD_GONE,
        None,
        GONE,
    ),
    "the pod is deleted while the command runs: gone": (
        FakeClient(pod(), None, command=BROKEN),
        ExecStatus.POD_GONE,
        None,
        GONE,
    ),
    "the pod ends while the command runs: gone": (
        FakeClient(pod(), pod(phase="Failed"), command=BROKEN),
        ExecStatus.POD_GONE,
        None,
        ENDED,
    ),
    "the connection breaks: not reachable": (
        FakeClient(pod(), command=BROKEN),
        ExecStatus.NOT_REACHABLE,
        None,
        "the connection closed before the command ended",
    ),
    "no right: not reachable": (
        FakeClient(pod(), command=Forbidden(403, "Forbidden", "cannot create resource pods/exec")),
        ExecStatus.NOT_REACHABLE,
        None,
        "cannot create resource pods/exec",
    ),
    "the pod cannot be read: not reachable": (
        FakeClient(Unavailable(503, "ServiceUnavailable", "etcd is down")),
        ExecStatus.NOT_REACHABLE,
        None,
        "etcd is down",
    ),
    "the command takes longer than its limit: timed out": (
        FakeClient(pod(), seconds=60),
        ExecStatus.TIMED_OUT,
        None,
        "did not end within 5 s",
    ),
}


@pytest.mark.parametrize(("client", "status", "exit_code", "message"), RESULTS.values(), ids=RESULTS.keys())
async def test_results(client: FakeClient, status: ExecStatus, exit_code: int | None, message: str) -> None:
    result = await run(client)
    assert (result.key, result.status, result.exit_code, result.message) == (
        "check",
        status,
        exit_code,
        message,
    )
    assert client.closed == len(client.executed)


async def test_the_command_is_passed_on_with_its_stdin() -> None:
    client = FakeClient(pod())
    await run(client, replace(ACTION, stdin=b"hosts"))
    await run(client)
    command = ("sh", "-c", "exit 3")
    assert client.executed == [
        ("launcher", "home", command, "main", b"hosts"),
        ("launcher", "home", command, "main", None),
    ]


async def test_a_command_that_changes_nothing_is_run_without_reading_the_pod() -> None:
    client = FakeClient(Unavailable(503, "ServiceUnavailable", "must not be read"), command=0)
    result = await run(client, replace(ACTION, read_only=True))
    assert (result.status, result.exit_code) == (ExecStatus.DONE, 0)


async def test_a_command_that_changes_nothing_and_fails_tells_that_the_pod_is_gone() -> None:
    result = await run(FakeClient(None, command=BROKEN), replace(ACTION, read_only=True))
    assert (result.status, result.message) == (ExecStatus.POD_GONE, GONE)


async def test_the_loss_of_the_lease_is_raised() -> None:
    with pytest.raises(LeaseExpired):
        await run(FakeClient(pod(), command=LeaseExpired()))


async def test_a_time_limit_above_the_maximum_is_cut() -> None:
    result = await run(FakeClient(pod(), seconds=1e6), replace(ACTION, timeout_seconds=1e9))
    assert result.message == f"did not end within {MAX_EXEC_SECONDS:g} s"


OUTPUTS = {
    "short output is kept whole": ([b"a", b"b"], b"ab"),
    "one large piece: its end is kept": ([b"x" * 10_000 + b"end"], (b"x" * 10_000 + b"end")[-4096:]),
    "many pieces: the end of the last is kept": (
        [b"x" * 3000, b"y" * 3000],
        b"x" * 1096 + b"y" * 3000,
    ),
    "any bytes are kept as they are": ([bytes(range(256))], bytes(range(256))),
}


@pytest.mark.parametrize(("output", "want"), OUTPUTS.values(), ids=OUTPUTS.keys())
async def test_the_end_of_the_output_is_kept(output: Sequence[bytes], want: bytes) -> None:
    result = await run(FakeClient(pod(), output=output))
    assert (result.stdout, result.stderr) == (want, b"warning")
    assert len(result.stdout) <= MAX_OUTPUT_BYTES


async def test_output_before_a_timeout_is_kept() -> None:
    result = await run(FakeClient(pod(), seconds=60, output=[b"so far"]))
    assert (result.status, result.stdout) == (ExecStatus.TIMED_OUT, b"so far")


async def test_much_output_is_read_slowly() -> None:
    loop = asyncio.get_running_loop()
    pieces = [b"x" * (FAST_OUTPUT_BYTES // 4)] * 5
    before = loop.time()
    await run(FakeClient(pod(), seconds=0, output=pieces[:4]))
    assert loop.time() == before
    await run(FakeClient(pod(), seconds=0, output=pieces))
    assert loop.time() - before == pytest.approx(len(pieces[4]) / SLOW_BYTES_PER_SECOND)


async def test_many_small_pieces_of_output_are_read_slowly() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    result = await run(FakeClient(pod(), output=[b"."] * 10_000))
    assert result.status is ExecStatus.TIMED_OUT
    assert loop.time() - before == pytest.approx(5)
