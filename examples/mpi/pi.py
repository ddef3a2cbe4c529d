"""Estimates pi by throwing darts at a circle: every rank throws its own, and the hits are summed."""

import random

from mpi4py import MPI

DARTS = 200_000

world = MPI.COMM_WORLD
random.seed(world.rank)
hits = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(DARTS))
print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}: {hits} hits", flush=True)
total = world.allreduce(hits)
if world.rank == 0:
    print(f"pi is about {4 * total / (DARTS * world.size):.3f}")
