"""Makes checkpoint folders with files of known content."""

import random
from collections.abc import Mapping
from pathlib import Path

from argosy.checkpoint.drivers.folder_manifest import read_manifest
from argosy.checkpoint.manifest import Manifest
from argosy_sdk.session import Session


def noise(seed: int, size: int) -> bytes:
    """Return bytes that hardly compress, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def make_checkpoint(
    directory: Path, step: int, files: Mapping[str, bytes], **variables: str
) -> tuple[Path, Manifest]:
    """Save a checkpoint by the SDK; returns its folder and manifest."""
    session = Session({"ARGOSY_CHECKPOINT_DIR": str(directory), **variables})
    with session.saving(step) as folder:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    published = directory / f"step-{step}"
    return published, read_manifest(published)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, without the manifest."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
