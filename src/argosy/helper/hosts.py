"""Writes the list of a role's hosts in the form that a launcher wants, replacing the file in one step."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what copies files need not load what asks the operator
    from argosy.helper.endpoint import Endpoint

FORMATS = ("plain", "ompi", "mpich", "intel", "json")
"""One host a line, with its slots as the launcher writes them; or JSON."""


def write_hosts(endpoint: "Endpoint", role: str, form: str, output: Path, deadline: float | None) -> int:
    """How many bytes were written."""
    text = endpoint.get("hosts", {"role": role, "format": form}, deadline)
    replace_file(output, text, 0o644)
    return len(text)


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """A reader sees the old file or the new one, never half of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("xb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
