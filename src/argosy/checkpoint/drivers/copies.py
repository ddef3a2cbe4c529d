"""Restores the newest checkpoint of any copy of a program. Each has a store of its own beside the others.

The other copies go on meanwhile: they save newer checkpoints and delete older ones. So all stores are looked
at again after a checkpoint that could not be restored: if it was deleted, there is a newer one by then.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from argosy.checkpoint.drivers.buckets import Bucket
from argosy.checkpoint.drivers.choosing import problem_in
from argosy.checkpoint.drivers.object_store import ObjectStore
from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.store import Latest, Scan, Skipped

SCANS: Final = 10
"""How often a folder is looked at in which checkpoints are deleted at that moment."""


class _Candidate(Struct, frozen=True):
    """A checkpoint of one copy."""

    copy: str
    store: ObjectStore
    manifest: Manifest


class CopyFolders:
    """The stores of all copies, each in a folder with the name of the copy.

    `open_folder` returns the folder of a name, `own` is that of the copy that restores: it is preferred among
    checkpoints of one step.
    """

    def __init__(self, top: Bucket, open_folder: Callable[[str], Bucket], own: str) -> None:
        self._top = top
        self._open_folder = open_folder
        self._own = own

    def restore_latest(self, target: Path) -> Latest:
        """Restore the newest checkpoint that can be restored, and tell which were skipped."""
        skipped: dict[tuple[str, str], Skipped] = {}
        while True:
            found = [*self._scan(skipped)]
            usable = [each for each in found if (each.copy, each.manifest.name) not in skipped]
            if not usable:
                return Latest(None, tuple(skipped.values()))
            newest = max(usable, key=self._rank)
            problem = problem_in(partial(newest.store.restore_beside_saves, newest.manifest, target))
            if not problem:
                return Latest(newest.manifest, tuple(skipped.values()))
            name = newest.manifest.name
            skipped[newest.copy, name] = Skipped(f"{newest.copy}/{name}", problem)

    def _scan(self, skipped: dict[tuple[str, str], Skipped]) -> Iterator[_Candidate]:
        """Yield the checkpoints of all copies, and note those whose manifest cannot be used."""
        for copy in self._top.folders():
            store = ObjectStore(self._open_folder(copy))
            found = _scan_whole(store)
            for bad in found.skipped:
                skipped[copy, bad.name] = Skipped(f"{copy}/{bad.name}", bad.reason)
            for manifest in found.manifests:
                yield _Candidate(copy, store, manifest)

    def _rank(self, candidate: _Candidate) -> tuple[int, bool, str]:
        manifest = candidate.manifest
        return manifest.step, candidate.copy == self._own, manifest.created


def _scan_whole(store: ObjectStore) -> Scan:
    """Return the checkpoints of a copy as they are at one moment, as far as it holds still."""
    found = store.scan()
    for _ in range(SCANS - 1):
        if not found.vanished:
            break
        found = store.scan()
    return found
