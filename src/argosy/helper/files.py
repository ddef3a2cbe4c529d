"""Writes files that other containers of the pod read."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file in one step: a reader sees the old content or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # Of a container that was killed while it wrote: its successor has the same process id.
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
