"""Deletes checkpoints that need not be kept any more, where the sidecar must not.

The sidecar decides which ones these are. It runs as a user of its own if the template of the pod names none,
and may then read what this process writes, but not delete it: so it lists them in a file, with their digests.
Training never ends because of it.
"""

import json
from pathlib import Path
from typing import Iterator, Tuple

from argosy_sdk import folders, manifest
from argosy_sdk.errors import CheckpointError

FILE_NAME = "surplus.json"
"""Beside orders.json: a list of objects with `step` and `digest`."""
_MAX_BYTES = 1024 * 1024


def delete(directory: Path, listed: Path) -> None:
    """Delete the checkpoints in a list, unless there are others of these steps by now."""
    for step, digest in _read(listed):
        folder = folders.published(directory, step)
        try:
            if manifest.digest_of(manifest.read(folder)) == digest:
                folders.remove(directory, step)
        except (CheckpointError, OSError):
            continue


def _read(listed: Path) -> Iterator[Tuple[int, str]]:
    try:
        with listed.open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
        return iter([(int(each["step"]), str(each["digest"])) for each in content])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return iter(())
