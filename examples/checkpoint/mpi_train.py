"""Finds a slope with several MPI ranks, each with its own random numbers, which it saves in its own file.

export ARGOSY_CHECKPOINT_DIR=/tmp/slope ARGOSY_CHECKPOINT_INTERVAL=1
mpiexec -n 2 python mpi_train.py
"""

import json
import sys

import numpy as np
from mpi4py import MPI

from argosy_sdk import agree, due, latest, saving

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
RATE = 0.1
SLOPE = np.array([2.0, -1.0, 0.5])


def main() -> None:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    numbers = np.random.default_rng(rank)
    weights, step = np.zeros(3), 0
    folder = agree(latest())
    if folder is not None:
        weights, step = np.load(folder / "weights.npy"), int(folder.name.removeprefix("step-"))
        numbers.bit_generator.state = json.loads((folder / f"rank-{rank}.json").read_text())
        if rank == 0:
            print(f"continuing after step {step}", flush=True)
    while step < STEPS:
        step += 1
        points = numbers.normal(size=(64, 3))
        gradient = points.T @ (points @ (weights - SLOPE) + numbers.normal(scale=0.1, size=64)) / 64
        weights = weights - RATE * world.allreduce(gradient) / size
        if rank == 0:
            print(f"step {step}", flush=True)
        if agree(due(step)) or step == STEPS:
            with saving(step) as folder:
                (folder / f"rank-{rank}.json").write_text(json.dumps(numbers.bit_generator.state))
                if rank == 0:
                    np.save(folder / "weights.npy", weights)
    if rank == 0:
        print(f"found the slope {weights.tolist()}", flush=True)


if __name__ == "__main__":
    main()
