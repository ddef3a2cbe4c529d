"""Boosted trees over rows of several workers; the first worker runs the tracker."""

import hashlib
import os
import socket
import time

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

ROWS, ROUNDS = 20_000, 60
HOST, PORT = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
SIZE, TASK = int(os.environ["DMLC_NUM_WORKER"]), os.environ["DMLC_TASK_ID"]


def main() -> None:
    tracker = start_tracker() if int(TASK) == 0 else None
    meet = {"dmlc_tracker_uri": wait_for(HOST), "dmlc_tracker_port": PORT, "dmlc_task_id": TASK}
    with collective.CommunicatorContext(**meet):
        rank = collective.get_rank()
        print(f"worker {rank} of {collective.get_world_size()}", flush=True)
        booster = xgboost.train({"tree_method": "hist", "nthread": 1}, rows(seed=rank + 1), ROUNDS)
        trees = hashlib.sha256(booster.save_raw()).hexdigest()[:8]
        print(f"worker {rank} has trees {trees}", flush=True)
    if tracker:
        tracker.wait_for()
        unseen = rows(seed=0)
        error = float(np.abs(booster.predict(unseen) - unseen.get_label()).mean())
        print(f"error {error:.3f} on held-out rows")
        assert error < 0.1


def rows(seed: int) -> xgboost.DMatrix:
    columns = np.random.default_rng(seed).uniform(-1, 1, (ROWS, 4))
    return xgboost.DMatrix(columns, np.sin(3 * columns[:, 0]) + columns[:, 1] * columns[:, 2])


def start_tracker() -> RabitTracker:
    tracker = RabitTracker(n_workers=SIZE, host_ip=wait_for(HOST), port=PORT, sortby="task")
    tracker.start()
    return tracker


def wait_for(name: str) -> str:
    """Return the address of a pod; wait until it has one."""
    while True:
        try:
            return socket.gethostbyname(name)
        except socket.gaierror:
            time.sleep(0.2)


if __name__ == "__main__":
    main()
