"""Data-parallel training with any number of workers, whose result does not depend on it.

The server has the weights. In each step it gives every connected worker an equal share of the same batch and
adds up their gradients. If a worker does not answer, the step is computed again by the others. So no step is
lost or counted twice, whoever comes and goes. A worker that gets SIGTERM finishes its share and leaves. The
server must stay: it keeps the weights in memory.

Needs only NumPy. Messages are arrays of numbers, so that nothing that is received can run code.
"""

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

CLASSES, PIXELS = 10, 64
SHAPE = (PIXELS + 1, CLASSES)
STEPS = int(os.environ.get("STEPS", "500"))
PACE = float(os.environ.get("PACE", "0.1"))
"""Seconds that a step takes at least, so that there is time to watch."""
PORT = 7400
ANSWER_SECONDS = 30.0
"""Time after which a worker that does not answer is lost: its machine may be gone without a word."""
RATE, BATCH = 0.1, 1200
TARGET_ACCURACY = 0.9


class Workers:
    """The workers that are connected. A thread adds new ones; lost ones are removed during a step."""

    def __init__(self) -> None:
        self._joined: list[Connection] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with Listener(("0.0.0.0", PORT), backlog=16) as listener:
            while True:
                connection = listener.accept()
                with self._lock:
                    self._joined.append(connection)

    def current(self) -> list[Connection]:
        """Return the connected workers; waits until there is one."""
        while True:
            with self._lock:
                if self._joined:
                    return list(self._joined)
            time.sleep(0.05)

    def lose(self, lost: list[Connection]) -> None:
        with self._lock:
            self._joined = [connection for connection in self._joined if connection not in lost]

    def gradient(self, weights: np.ndarray, step: int) -> tuple[np.ndarray, float, int]:
        """Return gradient and loss of the whole batch, and the number of workers that computed them."""
        while True:
            workers = self.current()
            answers, lost = [], []
            for share, worker in enumerate(workers):
                ask(worker, lost, np.array([step, share, len(workers), *weights.ravel()]))
            for worker in workers:
                answer = None if worker in lost else receive(worker)
                if answer is None:
                    lost.append(worker)
                else:
                    answers.append(answer)
            if not lost:
                total = np.sum(answers, axis=0) / BATCH
                return total[1:].reshape(SHAPE), float(total[0]), len(workers)
            self.lose(lost)


def ask(worker: Connection, lost: list[Connection], numbers: np.ndarray) -> None:
    try:
        worker.send_bytes(numbers.tobytes())
    except OSError:
        lost.append(worker)


def receive(connection: Connection) -> np.ndarray | None:
    """Return the next message; None if the other side has gone."""
    try:
        if not connection.poll(ANSWER_SECONDS):
            return None
        return np.frombuffer(connection.recv_bytes())
    except (EOFError, OSError):
        return None


def serve() -> int:
    workers, weights, size = Workers(), np.zeros(SHAPE), 0
    for step in range(STEPS):
        started = time.monotonic()
        gradient, loss, present = workers.gradient(weights, step)
        weights = weights - RATE * gradient
        if present != size or (step + 1) % 50 == 0:
            size = present
            print(f"step {step + 1:3d}  loss {loss:.3f}  workers {size}", flush=True)
        time.sleep(max(0.0, PACE - (time.monotonic() - started)))
    for worker in workers.current():
        ask(worker, [], np.array([]))
    images, labels = drawings(5000, seed=STEPS)
    accuracy = float(((images @ weights).argmax(1) == labels).mean())
    print(f"accuracy {accuracy:.3f} on held-out drawings (target {TARGET_ACCURACY})", flush=True)
    return 0 if accuracy >= TARGET_ACCURACY else 1


def work() -> int:
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    with connect(os.environ["ROLE_SERVER"]) as server:
        while not leaving.is_set():
            if not server.poll(0.2):
                continue
            numbers = receive(server)
            if numbers is None:
                return 1
            if not numbers.size:
                return 0
            step, share, shares = (int(number) for number in numbers[:3])
            server.send_bytes(compute(numbers[3:].reshape(SHAPE), step, share, shares).tobytes())
    print("finished my share and left", flush=True)
    return 0


def connect(host: str) -> Connection:
    while True:
        try:
            return Client((host, PORT))
        except OSError:
            time.sleep(0.2)


def compute(weights: np.ndarray, step: int, share: int, shares: int) -> np.ndarray:
    """Return loss and gradient of a share of the step's batch, as one vector."""
    images, labels = drawings(BATCH, seed=step)
    images, labels = images[share::shares], labels[share::shares]
    scores = images @ weights
    scores = np.exp(scores - scores.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    chosen = np.arange(len(labels))
    loss = -np.log(scores[chosen, labels] + 1e-12).sum()
    scores[chosen, labels] -= 1
    return np.array([loss, *(images.T @ scores).ravel()])


def drawings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy 8x8 drawings of ten patterns, with a constant as the last pixel; each seed has its own."""
    patterns = np.random.default_rng(20_000).random((CLASSES, PIXELS))
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    images = patterns[labels] - 0.5 + random.normal(0, 0.6, (count, PIXELS))
    return np.hstack([images, np.ones((count, 1))]), labels


if __name__ == "__main__":
    sys.exit(serve() if os.environ["ROLE"] == "server" else work())
