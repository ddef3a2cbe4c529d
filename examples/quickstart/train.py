"""Data-parallel training of a small network: NumPy for the arithmetic, MPI to average the gradients.

Every rank holds its own share of the data and the same weights. Each step, every rank computes the gradient
on a batch of its share; `Allreduce` averages the gradients over the pods' network; all take the same step.
Rank 0 writes a checkpoint now and then, and all start from the last one there is: a run that loses a worker
loses only the steps since then.
"""

import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

CLASSES, PIXELS, HIDDEN = 10, 64, 96
STEPS = int(os.environ.get("STEPS", "2000"))
EVERY = int(os.environ.get("CHECKPOINT_EVERY", "100"))
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "checkpoint.npz"))
RATE = 0.05
WANTED_ACCURACY = 0.93

Weights = list[np.ndarray]


def main() -> int:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    images, labels = drawings(2000, seed=rank + 1)
    weights, first = load(world)
    say(world, f"{size} workers, {'starting' if first == 0 else f'resumed from step {first}'}")
    random = np.random.default_rng([rank, first])
    for step in range(first, STEPS):
        batch = random.integers(0, len(images), 128)
        loss, gradient = backward(weights, images[batch], labels[batch])
        averaged = [average(world, part) for part in gradient]
        for weight, part in zip(weights, averaged, strict=True):
            weight -= RATE * part
        if (step + 1) % EVERY == 0:
            total = world.allreduce(loss) / size
            save(world, weights, step + 1)
            say(world, f"step {step + 1:4d}  loss {total:.3f}")
    test_images, test_labels = drawings(2000, seed=0)
    accuracy = float((forward(weights, test_images)[1].argmax(1) == test_labels).mean())
    say(world, f"accuracy {accuracy:.3f} on drawings never seen (wanted {WANTED_ACCURACY})")
    return 0 if accuracy >= WANTED_ACCURACY else 1


def drawings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy 8x8 drawings of ten patterns: the same ten for everyone, other noise for each seed."""
    patterns = np.random.default_rng(20_000).random((CLASSES, PIXELS))
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    return patterns[labels] + random.normal(0, 0.65, (count, PIXELS)), labels


def forward(weights: Weights, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(images @ weights[0] + weights[1], 0)
    return hidden, hidden @ weights[2] + weights[3]


def backward(weights: Weights, images: np.ndarray, labels: np.ndarray) -> tuple[float, Weights]:
    """Cross-entropy loss of a batch and its gradient."""
    hidden, scores = forward(weights, images)
    scores = np.exp(scores - scores.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    chosen = np.arange(len(labels))
    loss = -float(np.log(scores[chosen, labels] + 1e-12).mean())
    scores[chosen, labels] -= 1
    scores /= len(labels)
    inner = (scores @ weights[2].T) * (hidden > 0)
    return loss, [images.T @ inner, inner.sum(0), hidden.T @ scores, scores.sum(0)]


def average(world: MPI.Comm, part: np.ndarray) -> np.ndarray:
    total = np.empty_like(part)
    world.Allreduce(np.ascontiguousarray(part), total)
    return total / world.Get_size()


def load(world: MPI.Comm) -> tuple[Weights, int]:
    """The last checkpoint, or fresh weights: read by rank 0 and handed to all, so that all agree."""
    found: tuple[Weights, int] | None = None
    if world.Get_rank() == 0:
        if CHECKPOINT.exists():
            with np.load(CHECKPOINT) as saved:
                found = [saved[f"w{i}"] for i in range(4)], int(saved["step"])
        else:
            random = np.random.default_rng(7)
            first, second = random.normal(0, 0.1, (PIXELS, HIDDEN)), random.normal(0, 0.1, (HIDDEN, CLASSES))
            found = [first, np.zeros(HIDDEN), second, np.zeros(CLASSES)], 0
    weights, step = world.bcast(found)
    return weights, step


def save(world: MPI.Comm, weights: Weights, step: int) -> None:
    """Replace the checkpoint in one step: a reader sees the old one or the new one, never half of one."""
    if world.Get_rank() != 0:
        return
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    beside = CHECKPOINT.with_suffix(".new.npz")
    with beside.open("wb") as file:
        np.savez(file, step=step, **{f"w{i}": weight for i, weight in enumerate(weights)})
        file.flush()
        os.fsync(file.fileno())
    beside.replace(CHECKPOINT)


def say(world: MPI.Comm, line: str) -> None:
    if world.Get_rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
