"""Data-parallel training that saves when its machine is taken away, and ends as if nothing had happened.

Worker 0 sends the weights, the others send gradients of their share of the batch back. Worker 0 saves the
weights when a checkpoint is due, which is at an interval and whenever one is ordered. The batch depends on
the step alone, so the weights at the end are the same to the last bit, whether a machine was lost or not.

Needs only NumPy. Messages are arrays of numbers, so that nothing that is received can run code.
"""

import hashlib
import os
import sys
import time
from multiprocessing.connection import Client, Connection, Listener

import numpy as np

from argosy_sdk import due, latest, open_order, saving, should_stop

CLASSES, PIXELS = 10, 64
SHAPE = (PIXELS + 1, CLASSES)
STEPS = int(os.environ.get("STEPS", "300"))
PACE = float(os.environ.get("PACE", "0.1"))
"""Seconds that a step takes at least, so that there is time to watch."""
PORT = int(os.environ.get("PORT", "7400"))
RATE, BATCH = 0.1, 1200
TARGET_ACCURACY = 0.9


def lead(others: int) -> int:
    """Train together with the other workers, and save."""
    weights, step = load()
    with Listener(("0.0.0.0", PORT), backlog=16) as listener:
        connections = [listener.accept() for _ in range(others)]
    by_index = {int(receive(connection)[0]): connection for connection in connections}
    workers = [by_index[index] for index in sorted(by_index)]
    print(f"{others + 1} workers, {f'resumed from step {step}' if step else 'starting'}", flush=True)
    while step < STEPS:
        started = time.monotonic()
        weights = weights - RATE * gradient(workers, weights, step)
        step += 1
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss(weights, step):.3f}", flush=True)
        if due(step):
            save(weights, step)
        time.sleep(max(0.0, PACE - (time.monotonic() - started)))
    for worker in workers:
        worker.send_bytes(b"")
    return report(weights)


def gradient(workers: list[Connection], weights: np.ndarray, step: int) -> np.ndarray:
    """Return the mean gradient of the step's batch, of which every worker computes a share."""
    message = np.array([step, *weights.ravel()]).tobytes()
    for worker in workers:
        worker.send_bytes(message)
    shares = [compute(weights, step, 0, len(workers) + 1), *(receive(worker) for worker in workers)]
    return np.sum(shares, axis=0).reshape(SHAPE) / BATCH


def follow(index: int, count: int, leader: str) -> int:
    """Compute shares for worker 0 until it is done; without it there is nothing to do."""
    try:
        with connect(leader) as server:
            server.send_bytes(np.array([float(index)]).tobytes())
            while (numbers := receive(server)).size:
                step, weights = int(numbers[0]), numbers[1:].reshape(SHAPE)
                server.send_bytes(compute(weights, step, index, count).tobytes())
    except (EOFError, OSError):
        return 1
    return 0


def load() -> tuple[np.ndarray, int]:
    """Return the weights of the newest checkpoint with its step, or new ones."""
    folder = latest()
    if folder is None:
        return np.zeros(SHAPE), 0
    return np.load(folder / "weights.npy"), int(folder.name.removeprefix("step-"))


def save(weights: np.ndarray, step: int) -> None:
    order = open_order()
    with saving(step, rank=0, world=1) as folder:
        np.save(folder / "weights.npy", weights)
    if order:
        print(f"saved step {step}, because of: {order.reason}", flush=True)
    while should_stop():
        time.sleep(1)  # the pods are deleted; every further step would be lost


def report(weights: np.ndarray) -> int:
    images, labels = drawings(5000, seed=STEPS)
    accuracy = float(((images @ weights).argmax(1) == labels).mean())
    print(f"weights {hashlib.sha256(weights.tobytes()).hexdigest()[:16]} after {STEPS} steps", flush=True)
    print(f"accuracy {accuracy:.3f} on held-out drawings (target {TARGET_ACCURACY})", flush=True)
    return 0 if accuracy >= TARGET_ACCURACY else 1


def connect(host: str) -> Connection:
    while True:
        try:
            return Client((host, PORT))
        except OSError:
            time.sleep(0.2)


def receive(connection: Connection) -> np.ndarray:
    return np.frombuffer(connection.recv_bytes())


def scores_of(weights: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Return the probability of each class."""
    scores = images @ weights
    scores = np.exp(scores - scores.max(1, keepdims=True))
    return scores / scores.sum(1, keepdims=True)


def compute(weights: np.ndarray, step: int, share: int, shares: int) -> np.ndarray:
    """Return the gradient of a share of the step's batch, as one vector."""
    images, labels = drawings(BATCH, seed=step)
    images, labels = images[share::shares], labels[share::shares]
    scores = scores_of(weights, images)
    scores[np.arange(len(labels)), labels] -= 1
    return (images.T @ scores).ravel()


def loss(weights: np.ndarray, step: int) -> float:
    images, labels = drawings(BATCH, seed=step)
    scores = scores_of(weights, images)
    return float(-np.log(scores[np.arange(len(labels)), labels] + 1e-12).mean())


def drawings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy 8x8 drawings of ten patterns, with a constant as the last pixel; each seed has its own."""
    patterns = np.random.default_rng(20_000).random((CLASSES, PIXELS))
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    images = patterns[labels] - 0.5 + random.normal(0, 0.6, (count, PIXELS))
    return np.hstack([images, np.ones((count, 1))]), labels


def main() -> int:
    index, size = int(os.environ["INDEX"]), int(os.environ["ROLE_WORKER_SIZE"])
    if index == 0:
        return lead(size - 1)
    return follow(index, size, os.environ["ROLE_WORKER"].split(",")[0])


if __name__ == "__main__":
    sys.exit(main())
