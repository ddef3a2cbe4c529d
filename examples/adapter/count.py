"""Sends a number to the next pod of the ring when it has come from the one before, and adds one to it."""

import os
import socket
import time

RANK, PORT = int(os.environ["RING_RANK"]), int(os.environ["RING_PORT"])
HOST, _, NEXT_PORT = os.environ["RING_NEXT"].rpartition(":")


def send(number: int) -> None:
    """The next one may not listen yet, nor have an address."""
    while True:
        try:
            with socket.create_connection((HOST, int(NEXT_PORT)), timeout=5) as connection:
                connection.sendall(str(number).encode())
                return
        except OSError:
            time.sleep(0.2)


with socket.create_server(("", PORT)) as server:
    if RANK == 0:
        send(1)
    connection, _ = server.accept()
    with connection:
        number = int(connection.recv(16))
    if RANK != 0:
        send(number + 1)
time.sleep(2)  # long enough to be seen
print(f"rank {RANK} got {number}" + (" back: the ring is closed" if RANK == 0 else ""))
