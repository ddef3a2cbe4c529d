"""`python -m bench.waiters COUNT ARGUMENT …`: runs helpers that wait for a role, all in one process.

Each helper runs in a thread instead of a container, with the container's arguments and the environment of
this process. Prints `waiting` as soon as all of them wait; then, for each that was released, the time on the
monotonic clock, which all processes of a machine share.
"""

import contextlib
import io
import sys
import threading
import time

from argosy.helper.commands import main as help_pod


def main() -> None:
    count, arguments = int(sys.argv[1]), sys.argv[2:]
    threading.stack_size(256 * 1024)
    output = _HelperOutput(count)
    out, sys.stdout = sys.stdout, output
    released: list[float] = []

    def run_helper() -> None:
        if help_pod(arguments) == 0:
            released.append(time.monotonic())

    threads = [threading.Thread(target=run_helper) for _ in range(count)]
    for thread in threads:
        thread.start()
    all_wait = output.all_wait.wait(120)
    out.write("waiting\n" if all_wait else "timeout\n")
    out.flush()
    for thread in threads:
        thread.join()
    out.write("".join(f"{seconds}\n" for seconds in released))
    out.flush()


class _HelperOutput(io.StringIO):
    """Counts the helpers that have printed that they wait."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._missing = count
        self._lock = threading.Lock()
        self.all_wait = threading.Event()

    def write(self, text: str) -> int:
        with self._lock:
            self._missing -= text.count("waiting for role")
            if self._missing <= 0:
                self.all_wait.set()
        return len(text)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
