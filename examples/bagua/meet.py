"""A substitute for Bagua, which cannot be installed: reads the same variables strictly, and meets like Bagua.

Static: rank 0 listens at MASTER_ADDR:MASTER_PORT and the others connect to it. Elastic: all register in etcd
under the job's name, as `bagua.distributed.run` does, until there are enough. Standard library only.
"""

import base64
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 60


def main() -> None:
    ports = (number("BAGUA_SSH_PORT"), *listed("BAGUA_AVAILABLE_PORTS"))
    held = [socket.create_server(("", port)) for port in ports]
    assert "RANK" not in os.environ or "ETCD_HOST" not in os.environ, "both static and elastic"
    rank, size = static() if "MASTER_ADDR" in os.environ else elastic()
    time.sleep(2)  # so that the job is seen running
    print(f"rank {rank} of {size} with {len(held)} ports", flush=True)


def static() -> tuple[int, int]:
    rank, size = number("RANK"), number("WORLD_SIZE")
    names = os.environ["BAGUA_NODE_DOMAIN_NAMES"].split(",")
    assert 0 <= rank < size == len(set(names)), (rank, size, names)
    assert names[rank].split(".")[0] == socket.gethostname(), names
    assert names[0] == os.environ["MASTER_ADDR"], names
    addresses = {until(lambda name=name: socket.gethostbyname(name)) for name in names}
    assert len(addresses) == size, addresses
    services = os.environ["SERVICE_DOMAIN_NAME"].split(" ")
    until(lambda: agree({one for service in services for one in of_service(service)}, addresses))
    if rank == 0:
        gather(size)
    else:
        join(rank)
    return rank, size


def gather(size: int) -> None:
    with socket.create_server(("", number("MASTER_PORT"))) as server:
        members = [server.accept()[0] for _ in range(size - 1)]
        ranks = sorted(int(member.recv(16)) for member in members)
        assert ranks == list(range(1, size)), ranks
        for member in members:
            member.sendall(b"go")


def join(rank: int) -> None:
    master = os.environ["MASTER_ADDR"], number("MASTER_PORT")
    with until(lambda: socket.create_connection(master, timeout=SECONDS)) as connection:
        connection.sendall(str(rank).encode())
        assert connection.recv(2) == b"go"


def elastic() -> tuple[int, int]:
    least, most = number("MIN_SIZE"), number("MAX_SIZE")
    assert 1 <= least <= most, (least, most)
    assert number("ETCD_CLIENT_PORT") != number("ETCD_SERVER_PORT")
    own = socket.gethostname()
    folder = f"/torchelastic/{os.environ['JOB_ID']}/"
    until(lambda: etcd("put", key=coded(folder + own), value=coded(own)))
    members = until(lambda: enough(folder, least))
    assert len(members) <= most, members
    mine = until(lambda: socket.gethostbyname(own))
    assert mine in of_service(os.environ["SERVICE_DOMAIN_NAME"])
    return sorted(members).index(own), len(members)


def enough(folder: str, least: int) -> list[str]:
    found = etcd("range", key=coded(folder), range_end=coded(folder[:-1] + "0")).get("kvs", [])
    members = [base64.b64decode(one["value"]).decode() for one in found]
    if len(members) < least:
        raise OSError(f"only {members}")
    return members


def etcd(what: str, **body: str) -> dict:
    url = f"http://{os.environ['ETCD_HOST']}:{number('ETCD_CLIENT_PORT')}/v3/kv/{what}"
    with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=5) as answer:
        return json.load(answer)


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def of_service(name: str) -> set[str]:
    return {str(found[4][0]) for found in socket.getaddrinfo(name, None, socket.AF_INET)}


def agree(found: set[str], wanted: set[str]) -> None:
    if found != wanted:
        raise OSError(f"{found} are not {wanted}")


def number(name: str) -> int:
    value = os.environ[name]
    assert value.isdigit(), f"{name} is {value!r}"
    return int(value)


def listed(name: str) -> list[int]:
    return [int(one) for one in os.environ[name].split(",")] if os.environ[name] else []


def until(attempt: Callable[[], T]) -> T:
    """Retry until it works: other pods may not be reachable yet."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return attempt()
        except (OSError, urllib.error.URLError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
