"""Starts the helper as `python -m argosy.helper` or as a plain script by its path.

As a script the package is not importable by name yet: the folder that holds `argosy` goes on the path first.
The kernel does not deliver SIGTERM to a container's first process unless that process handles it: without a
handler, a waiting pod would take its whole grace period to terminate.
"""

import signal
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from argosy.helper.commands import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
