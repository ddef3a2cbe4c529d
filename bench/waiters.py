"""`python -m bench.waiters COUNT ARGUMENT …`: so many helpers that wait for a role, in one process.

Each is the helper of a pod, in a thread of its own instead of a container, with the container's arguments and
the environment that this process was given. Says `waiting` when all of them have asked and none was let go;
then, for each that was, when: on the monotonic clock, which all processes of a machine share.
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
    said = _Said(count)
    out, sys.stdout = sys.stdout, said
    released: list[float] = []

    def one() -> None:
        if help_pod(arguments) == 0:
            released.append(time.monotonic())

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    asked = said.all_wait.wait(120)
    out.write("waiting\n" if asked else "too slow\n")
    out.flush()
    for thread in threads:
        thread.join()
    out.write("".join(f"{moment}\n" for moment in released))
    out.flush()


class _Said(io.StringIO):
    """What the helpers say: a line each when they have been told to wait."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count
        self._lock = threading.Lock()
        self.all_wait = threading.Event()

    def write(self, text: str) -> int:
        with self._lock:
            self._left -= text.count("waiting for role") + text.count(": waits for")
            if self._left <= 0:
                self.all_wait.set()
        return len(text)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
