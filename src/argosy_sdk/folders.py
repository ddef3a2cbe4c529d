"""The folder of all checkpoints: finds complete ones, removes unfinished ones, publishes a new one.

`step-<n>.tmp` is filled and renamed to `step-<n>`. If that exists already it is first renamed to
`step-<n>.old.tmp`, which `clean` takes back if the process ended between the two. One that is given up, or
that is not kept any longer, is renamed to `step-<n>.abandoned.tmp` and removed.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Iterator, List, Tuple

from argosy_sdk import manifest as manifests
from argosy_sdk.errors import CheckpointError

_STEP = re.compile(r"step-(0|[1-9]\d{0,17})")
_UNFINISHED = re.compile(r"(step-\d+)(\.old|\.abandoned)?\.tmp")


def temporary(directory: Path, step: int) -> Path:
    """Return the folder into which a checkpoint is written."""
    return directory / f"step-{step}.tmp"


def published(directory: Path, step: int) -> Path:
    """Return the folder of a complete checkpoint."""
    return directory / f"step-{step}"


def newest_first(directory: Path) -> Iterator[Tuple[int, Path]]:
    """Yield step and folder of all checkpoints, complete or not, the newest first."""
    checkpoints: List[Tuple[int, Path]] = []
    for path in _entries(directory):
        match = _STEP.fullmatch(path.name)
        if match and path.is_dir() and not path.is_symlink():
            checkpoints.append((int(match[1]), path))
    return iter(sorted(checkpoints, reverse=True))


def clean(directory: Path) -> None:
    """Remove what earlier processes left unfinished, and restore a checkpoint that was being replaced."""
    for path in _entries(directory):
        match = _UNFINISHED.fullmatch(path.name)
        if not match:
            continue
        final = directory / match[1]
        if match[2] == ".old" and not final.exists() and _is_complete(path):
            path.rename(final)
        else:
            shutil.rmtree(str(path), ignore_errors=True)


def publish(directory: Path, step: int) -> None:
    """Rename the filled folder to its final name and flush the change to the disk."""
    source, target = temporary(directory, step), published(directory, step)
    replaced = directory / f"step-{step}.old.tmp"
    if target.exists():
        shutil.rmtree(str(replaced), ignore_errors=True)
        target.rename(replaced)
    source.rename(target)
    flush(directory)
    shutil.rmtree(str(replaced), ignore_errors=True)


def abandon(directory: Path, step: int) -> None:
    """Remove the unfinished folder.

    It is renamed first: another rank may write into it meanwhile, and must find it gone afterwards.
    """
    _remove(temporary(directory, step), directory / f"step-{step}.abandoned.tmp")


def remove(directory: Path, step: int) -> None:
    """Remove a complete checkpoint, of which no part is ever found as one."""
    _remove(published(directory, step), directory / f"step-{step}.abandoned.tmp")


def _remove(folder: Path, abandoned: Path) -> None:
    shutil.rmtree(str(abandoned), ignore_errors=True)
    folder.rename(abandoned)
    shutil.rmtree(str(abandoned), ignore_errors=True)


def flush(folder: Path) -> None:
    """Flush the entries of a folder to the disk."""
    descriptor = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_complete(folder: Path) -> bool:
    try:
        manifests.read(folder)
    except CheckpointError:
        return False
    return True


def _entries(directory: Path) -> List[Path]:
    try:
        return list(directory.iterdir())
    except FileNotFoundError:
        return []
