"""A training of two ranks in plain Python: `lockstep.py STEPS`. Its result depends on every step of both.

The ranks exchange their states before each step, over a connection by which rank 0 also says when to save.
PACE is how many seconds a step takes; a resumed program needs a twentieth, which is long enough to be seen.
"""

import hashlib
import os
import socket
import sys
import time

from argosy_sdk import due, latest, open_order, saving

RANK, STEPS = int(os.environ["RANK"]), int(sys.argv[1])
PACE = float(os.environ.get("PACE", "0")) / (1 if os.environ.get("ARGOSY_RESUME", "0") == "0" else 20)


class Peer:
    """The other rank."""

    def __init__(self, connection: socket.socket) -> None:
        # Two objects: one that reads and writes would drop lines that it has received when it writes.
        self._reader, self._writer = connection.makefile("r"), connection.makefile("w")

    def exchange(self, word: str) -> str:
        """Send a word and return the one that the other rank sends."""
        print(word, file=self._writer, flush=True)
        return self._reader.readline().strip()


def connect() -> Peer:
    """Connect to the other rank."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK == 0:
        with socket.create_server(("", address[1])) as server:
            return Peer(server.accept()[0])
    while True:
        try:
            return Peer(socket.create_connection(address))
        except OSError:
            time.sleep(0.05)


def decide(step: int) -> str:
    if not due(step):
        return "go on"
    order = open_order()
    return "save and stop" if order and order.stop else "save"


def main() -> None:
    step, state = 0, ""
    if folder := latest():
        step, state = int((folder / "step.txt").read_text()), (folder / f"rank-{RANK}.txt").read_text()
    peer = connect()
    assert peer.exchange(str(step)) == str(step), "the other rank has resumed from another step"
    print(f"from step {step}", flush=True)
    while step < STEPS:
        step += 1
        state = hashlib.sha256(f"{state} {peer.exchange(state)} {step} {RANK}".encode()).hexdigest()
        time.sleep(PACE)
        own = decide(step)
        other = peer.exchange(own)
        decision = own if RANK == 0 else other
        if decision == "go on":
            continue
        with saving(step) as folder:
            (folder / f"rank-{RANK}.txt").write_text(state)
            if RANK == 0:
                (folder / "step.txt").write_text(str(step))
        if decision == "save and stop":
            time.sleep(3600)  # the pod is deleted; every further step would be lost
    states = sorted((state, peer.exchange(state)))
    print(f"result {hashlib.sha256(' '.join(states).encode()).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
