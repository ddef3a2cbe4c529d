"""Data-parallel training of a small network: NumPy for the arithmetic, MPI to average the gradients.

Every rank has its own share of the data and the same weights. Each step, every rank computes the gradient
on a batch of its share; `Allreduce` sums the gradients over the pods' network; all take the same step.
Rank 0 writes checkpoints, and all ranks start from the last one: a job that loses a worker loses only the
steps since then.
"""

import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

CLASSES, PIXELS, HIDDEN = 10, 64, 96
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
STEPS = int(os.environ.get("STEPS", "1200"))
EVERY = int(os.environ.get("CHECKPOINT_EVERY", "50"))
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "checkpoint.npz"))
RATE, BATCH = 0.1, 512
TARGET_ACCURACY = 0.93


def main() -> int:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    images, labels = drawings(20_000, seed=rank + 1)
    weights, first = load(world)
    say(world, f"{size} workers, {'starting' if first == 0 else f'resumed from step {first}'}")
    random = np.random.default_rng([rank, first])
    for step in range(first, STEPS):
        batch = random.integers(0, len(images), BATCH)
        loss, gradient = backward(weights, images[batch], labels[batch])
        total = np.empty_like(gradient)
        world.Allreduce(gradient, total)
        weights -= RATE * total / size
        if (step + 1) % EVERY == 0:
            save(world, weights, step + 1)
            mean = world.allreduce(loss) / size
            say(world, f"step {step + 1:4d}  loss {mean:.3f}")
    test_images, test_labels = drawings(5000, seed=0)
    accuracy = float((forward(weights, test_images)[1].argmax(1) == test_labels).mean())
    say(world, f"accuracy {accuracy:.3f} on held-out drawings (target {TARGET_ACCURACY})")
    return 0 if accuracy >= TARGET_ACCURACY else 1


def drawings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy 8x8 drawings of ten patterns: the same for all ranks, other noise for each seed."""
    patterns = np.random.default_rng(20_000).random((CLASSES, PIXELS))
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    return patterns[labels] + random.normal(0, 0.65, (count, PIXELS)), labels


def layers(weights: np.ndarray) -> list[np.ndarray]:
    """Return the weights of each layer as views into the vector that is trained and sent."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES])
    return [part.reshape(shape) for part, shape in zip(np.split(weights, ends[:-1]), SHAPES, strict=True)]


def forward(weights: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inner, inner_bias, outer, outer_bias = layers(weights)
    hidden = np.maximum(images @ inner + inner_bias, 0)
    return hidden, hidden @ outer + outer_bias


def backward(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the cross-entropy loss of a batch and its gradient as one vector."""
    hidden, scores = forward(weights, images)
    scores = np.exp(scores - scores.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    chosen = np.arange(len(labels))
    loss = -float(np.log(scores[chosen, labels] + 1e-12).mean())
    scores[chosen, labels] -= 1
    scores /= len(labels)
    back = (scores @ layers(weights)[2].T) * (hidden > 0)
    parts = (images.T @ back, back.sum(0), hidden.T @ scores, scores.sum(0))
    return loss, np.concatenate([part.ravel() for part in parts])


def load(world: MPI.Comm) -> tuple[np.ndarray, int]:
    """Return the last checkpoint, or new weights; rank 0 reads it and broadcasts it, so that all agree."""
    found: tuple[np.ndarray, int] | None = None
    if world.Get_rank() == 0:
        if CHECKPOINT.exists():
            with np.load(CHECKPOINT) as saved:
                found = saved["weights"], int(saved["step"])
        else:
            size = sum(int(np.prod(shape)) for shape in SHAPES)
            found = np.random.default_rng(7).normal(0, 0.05, size), 0
    weights, step = world.bcast(found)
    return weights, step


def save(world: MPI.Comm, weights: np.ndarray, step: int) -> None:
    """Replace the checkpoint atomically: a reader sees the old one or the new one."""
    if world.Get_rank() != 0:
        return
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    temporary = CHECKPOINT.with_suffix(".new")
    with temporary.open("wb") as file:
        np.savez(file, weights=weights, step=step)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(CHECKPOINT)


def say(world: MPI.Comm, line: str) -> None:
    if world.Get_rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
