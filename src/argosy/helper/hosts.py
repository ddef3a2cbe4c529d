"""Writes the list of a role's hosts in the form that a launcher wants, replacing the file in one step."""

import os
import tempfile
from pathlib import Path

from argosy.helper.endpoint import Endpoint

FORMATS = ("plain", "ompi", "mpich", "intel", "json")
"""One host a line, with its slots as the launcher writes them; or JSON."""


def write_hosts(endpoint: Endpoint, role: str, form: str, output: Path, deadline: float | None) -> int:
    """How many bytes were written."""
    text = endpoint.get("hosts", {"role": role, "format": form}, deadline)
    replace_file(output, text, 0o644)
    return len(text)


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """A reader sees the old file or the new one, never half of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise
