"""Least squares over many parts of data: workers sum their parts, the client adds the sums and solves."""

import socket

import numpy as np
from distributed import Client

PARTS, POINTS, WORKERS = 16, 50_000, 2
SLOPE = np.array([2.0, -1.0, 0.5])


def summed(seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Generate one part of the data on the worker; return the sums that the solution needs, and the host."""
    random = np.random.default_rng(seed)
    points = random.normal(size=(POINTS, 3))
    wanted = points @ SLOPE + random.normal(size=POINTS)
    return points.T @ points, points.T @ wanted, socket.gethostname()


def main() -> None:
    with Client() as client:  # the scheduler's address is in DASK_SCHEDULER_ADDRESS
        client.wait_for_workers(WORKERS, timeout=60)
        done = client.gather(client.map(summed, range(PARTS)))
    hosts = sorted({host for _, _, host in done})
    print(f"{PARTS} parts on {' and '.join(hosts)}")
    found = np.linalg.solve(sum(square for square, _, _ in done), sum(product for _, product, _ in done))
    far = np.abs(found - SLOPE).max()
    print(f"found the slope within {far:.4f}")
    assert far < 0.05


if __name__ == "__main__":
    main()
