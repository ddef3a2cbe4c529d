"""A fake of `PodExec`: it runs no command, and a test sees what was started and answers it."""

import asyncio

from argosy.plan.actions import Exec, ExecResult


class FakeExec:
    def __init__(self) -> None:
        self.started: list[str] = []
        """NAMESPACE/KEY of each command, in the order in which they were started."""
        self.cancelled: list[str] = []
        self.most_at_once = 0
        self._running: dict[str, asyncio.Future[ExecResult]] = {}

    @property
    def running(self) -> list[str]:
        return sorted(self._running)

    async def run(self, namespace: str, action: Exec) -> ExecResult:
        name = f"{namespace}/{action.key}"
        answer: asyncio.Future[ExecResult] = asyncio.get_running_loop().create_future()
        self.started.append(name)
        self._running[name] = answer
        self.most_at_once = max(self.most_at_once, len(self._running))
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            if self._running.get(name) is answer:
                del self._running[name]

    async def answer(self, name: str, result: ExecResult | Exception | None = None) -> None:
        """Let a command end, by default with exit code 0, and let that take effect."""
        self.end(name, result)
        await settle()

    def end(self, name: str, result: ExecResult | Exception | None = None) -> None:
        """Let a command end as soon as the event loop runs."""
        if isinstance(result, Exception):
            self._running[name].set_exception(result)
        else:
            self._running[name].set_result(result or ExecResult(name.partition("/")[2], exit_code=0))


async def settle() -> None:
    """Let all tasks that can go on do so."""
    for _ in range(10):
        await asyncio.sleep(0)
