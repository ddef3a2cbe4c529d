"""Stores the token with which the API server authenticates to the node agent.

The agent serves logs, exec and attach for every pod on the machine, and the API server alone decides who may
use them. Access to the agent's socket is therefore not enough: every request must carry this token.
"""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

FILE: Final = "agent.token"


def agent_token(state: Path) -> str:
    """Return the token of a state folder, creating it if there is none."""
    path = state / FILE
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    fresh = path.with_name(f".{FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    with contextlib.suppress(FileExistsError):  # another process was first: its token is used
        os.link(fresh, path)
    fresh.unlink()
    return path.read_text()
