"""`on_notice`: called once for each order, with and without a signal."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from argosy_sdk import Order
from argosy_sdk.orders import Watcher
from tests.support.waiting import wait_for


def write_order(path: Path, epoch: int) -> None:
    order = {"version": 1, "epoch": epoch, "action": "Save", "reason": "Preempted", "by": None, "stop": True}
    temporary = path.with_name("orders.new")
    temporary.write_text(json.dumps(order))
    temporary.replace(path)


def test_each_order_is_told_once(tmp_path: Path) -> None:
    """In a thread, as in a program that registers outside of its main thread: no signal handler is set."""
    path, told = tmp_path / "orders.json", list[Order]()
    watcher = Watcher(path, told.append, epoch=7)
    write_order(path, 7)
    thread = threading.Thread(target=watcher.start)
    thread.start()
    thread.join()
    for epoch in (8, 8, 11):
        write_order(path, epoch)
        wait_for(lambda epoch=epoch: told and told[-1].epoch == epoch, lambda: str(told))  # type: ignore[misc]
    assert [order.epoch for order in told] == [8, 11]
    assert not (tmp_path / "pids").exists(), "the default action of SIGUSR1 would end this process"


PROGRAM = """
import os, signal, threading
from argosy_sdk import on_notice, orders
orders._WATCH_SECONDS = 3600.0
signal.signal(signal.SIGUSR1, lambda number, frame: os.write(1, b"own handler\\n"))
told = threading.Event()
on_notice(lambda order: (os.write(1, f"order {order.epoch} {order.reason}\\n".encode()), told.set()))
print("ready", flush=True)
told.wait()
"""


def test_a_signal_wakes_the_thread_and_the_programs_own_handler_runs_too(tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "ARGOSY_ORDERS": str(path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert [entry.name for entry in (tmp_path / "pids").iterdir()] == [str(process.pid)]
    write_order(path, 8)
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=60)
    assert sorted(output.splitlines()) == ["order 8 Preempted", "own handler"]
    assert process.returncode == 0
    assert list((tmp_path / "pids").iterdir()) == [], "it is not registered any more"


def test_a_folder_that_cannot_be_written_is_no_error() -> None:
    program = "from argosy_sdk import on_notice; on_notice(print)"
    environ = {**os.environ, "ARGOSY_ORDERS": "/dev/null/orders.json"}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=60)
