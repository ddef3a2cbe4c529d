"""Copies a checkpoint between stores, or between a store and a folder of checkpoint folders."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from argosy.checkpoint.drivers.step_folders import StepFolders
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.store import Store, StoreError

Choose = Callable[[Sequence[Manifest]], Manifest]


def copy_checkpoint(source: Store | Path, target: Store | Path, choose: Choose) -> Manifest:
    """Copy the chosen checkpoint of the source, and return its manifest; verifies every digest on the way.

    Between two stores the files are restored to a temporary folder, below TMPDIR.
    """
    manifest = choose(_list(source))
    if manifest.ranks:
        raise StoreError(f"step {manifest.step}: has files of ranks {list(manifest.ranks)} only")
    if isinstance(source, Path):
        if isinstance(target, Path):
            raise StoreError("source and target are folders; one must be a URI")
        target.publish(StepFolders(source).folder_of(manifest), manifest)
    elif isinstance(target, Path):
        source.restore(manifest, target / f"step-{manifest.step}")
    else:
        with tempfile.TemporaryDirectory(prefix="argosy-checkpoint-") as folder:
            restored = Path(folder) / "checkpoint"
            source.restore(manifest, restored)
            target.publish(restored, manifest)
    return manifest


def _list(source: Store | Path) -> Sequence[Manifest]:
    if not isinstance(source, Path):
        return source.list()
    if not source.is_dir():
        raise StoreError(f"{source}: is not a folder; a URI has a scheme, as in file://{source}")
    return StepFolders(source).list()
