"""`python -m bench.order_listeners COUNT`: runs sidecars that wait for orders, all in one process.

Each runs in a thread instead of a container, with the environment of this process. Prints `waiting` as soon
as all of them have the first answer. Then, for each that got an order, the time on the monotonic clock, which
all processes of a machine share.
"""

import io
import sys
import tempfile
import threading
import time
from pathlib import Path

from argosy.helper.endpoint import Endpoint
from argosy.helper.orders import OrderListener, Settings

WAIT_SECONDS = 120.0


def main() -> None:
    count, out = int(sys.argv[1]), sys.stdout
    sys.stdout = io.StringIO()  # what the helper prints
    threading.stack_size(256 * 1024)
    ready, times = threading.Semaphore(0), list[float]()

    def listen(folder: Path, index: int) -> None:
        file, wake = folder / str(index) / "orders.json", threading.Event()
        settings = Settings(folder, file, 1, "", "", "worker", index, True, False, resume=folder)
        listener = OrderListener(Endpoint.from_environment(), settings, wake)
        listener.run_once()
        ready.release()
        while not listener.is_ordered(0):
            listener.run_once()
        times.append(time.monotonic())

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        threads = [
            threading.Thread(target=listen, args=(Path(folder), index), daemon=True) for index in range(count)
        ]
        for thread in threads:
            thread.start()
        in_time = all(ready.acquire(timeout=WAIT_SECONDS) for _ in threads)
        print("waiting" if in_time else "timeout", file=out, flush=True)
        for thread in threads:
            thread.join(WAIT_SECONDS)
        print("".join(f"{seconds}\n" for seconds in times), file=out, flush=True)


if __name__ == "__main__":
    main()
