"""Removes a cluster when its owner process has ended without doing so.

Run as `python -m tests.support.cluster.guard OWNER SWITCH FOLDER`, with the pids of the owner and of the
cluster's switch. Ends by itself when the cluster does.
"""

import os
import select
import sys
from pathlib import Path

from tests.support.cluster import lifecycle


def main() -> int:
    """Wait until the owner or the cluster has ended."""
    owner, switch, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    try:
        cluster = os.pidfd_open(switch)
    except ProcessLookupError:
        return 0
    if cluster not in _first_to_end(owner, cluster):
        lifecycle.down(folder)
    return 0


def _first_to_end(owner: int, cluster: int) -> list[int]:
    try:
        watched = [os.pidfd_open(owner), cluster]
    except ProcessLookupError:
        return []
    return select.select(watched, [], [])[0]


if __name__ == "__main__":
    sys.exit(main())
