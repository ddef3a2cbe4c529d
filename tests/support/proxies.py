"""Runs the proxy of `proxy.py` in a separate process and reads its output."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support import proxy as proxy_program
from tests.support.servers import start_tethered, stop_process
from tests.support.waiting import eventually


class RunningProxy:
    """A proxy in a separate process."""

    def __init__(self, folder: Path, scheme: str, login: str) -> None:
        (folder / "logs").mkdir()
        self._log = folder / "logs" / "proxy.log"
        words = ["--scheme", scheme, "--login", login, "--certificate", str(folder / "proxy.pem")]
        command = (sys.executable, str(proxy_program.__file__), *words)
        self._process = start_tethered(command, folder, "proxy")

    def logged(self, word: str) -> list[str]:
        """The lines of its output that begin with this word."""
        lines = [line.split(" ", 1) for line in self._log.read_text().splitlines()]
        return [line[1] for line in lines if line[0] == word]

    async def address(self) -> str:
        await eventually(lambda: self.logged("listening"), 60)
        return f"127.0.0.1:{self.logged('listening')[0]}"

    def stop(self) -> None:
        stop_process(self._process)


@contextlib.contextmanager
def running_proxy(folder: Path, scheme: str, login: str) -> Iterator[RunningProxy | None]:
    """A proxy for the duration of a with block; none if there is no scheme.

    A proxy with TLS has certificate and key in `proxy.pem`. A proxy with a login requires it.
    """
    proxy = RunningProxy(folder, scheme, login) if scheme else None
    try:
        yield proxy
    finally:
        if proxy is not None:
            proxy.stop()
