"""Puts CRIU into the nodes of a real cluster, if `scripts/criu` has unpacked it.

containerd and runc look for it on PATH, where the other programs of a node are.
"""

import os
import threading
from pathlib import Path
from typing import Final

from argosy.checkpoint.drivers import criu
from tests.support.assets import Programs

OPTIONS: Final = "tcp-established\ntcp-close\n"
"""A dump leaves connections alone, and a restore closes them; containerd sets neither."""


COMMAND: Final = "criu"


def install(programs: Programs) -> list[str]:
    """Put the command `criu` beside the programs of nodes; return the folders that nodes must show."""
    command, prefix = programs.cache / COMMAND, criu.find_prefix()
    if prefix is None or prefix == Path("/"):  # the system's is in nodes anyway
        command.unlink(missing_ok=True)
        return []
    words = " ".join(f'"{word}"' for word in criu.prefix_command(prefix))
    # Nodes, also of other clusters, start at the same time.
    unfinished = command.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    unfinished.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    unfinished.chmod(0o755)
    unfinished.replace(command)
    return [str(prefix)]
