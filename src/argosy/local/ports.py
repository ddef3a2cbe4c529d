"""Reserves API server ports from the moment they are chosen until the supervisor ends.

Choosing a port and listening on it are a process start apart. A claim is an abstract Unix socket, a name that
the kernel keeps while a process has it open: control planes started at the same moment get different ports,
and one that was killed leaves no claim behind.
"""

import socket
from collections.abc import Iterable
from typing import NamedTuple


class Claim(NamedTuple):
    port: int
    holder: socket.socket
    """The claim lasts while any process has this socket open, including those that inherit it."""


def claim(port: int) -> Claim | None:
    """Claim a port; return None if a control plane has claimed it or a process listens on it."""
    holder = socket.socket(socket.AF_UNIX)
    try:
        holder.bind(f"\0argosy/port/{port}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return None
    return Claim(port, holder)


def claim_first(wanted: Iterable[int]) -> Claim:
    """Claim the first of these ports that is free, else any port."""
    for port in wanted:
        claimed = claim(port)
        if claimed is not None:
            return claimed
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        claimed = claim(port)
        if claimed is not None:
            return claimed
