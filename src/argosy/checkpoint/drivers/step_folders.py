"""Lists, verifies and deletes the checkpoints in a folder as training code writes them: `step-<n>` each.

Runs with a store `file://` or `pvc://` have such a folder. Nothing is published to it or restored from it.
"""

import hashlib
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from argosy.checkpoint.drivers.folder_manifest import read_manifest
from argosy.checkpoint.manifest import InvalidManifestError, Manifest, Part
from argosy.checkpoint.retention import newest_first, select_deletions
from argosy.checkpoint.store import Latest, Scan, Skipped, StoreError

_STEP = re.compile(r"step-\d+")


class StepFolders:
    """The checkpoints of one folder."""

    def __init__(self, folder: Path, uri: str = "") -> None:
        self._folder = folder
        self.uri = uri or str(folder)

    def exist(self) -> bool:
        """Return True if the folder has a checkpoint, valid or not."""
        return any(True for _ in self._steps())

    def scan(self) -> Scan:
        manifests, skipped = [], []
        for folder in self._steps():
            try:
                manifest = read_manifest(folder)
                if folder.name != f"step-{manifest.step}":
                    raise InvalidManifestError(f"the manifest is of step {manifest.step}")
            except InvalidManifestError as error:
                skipped.append(Skipped(folder.name, str(error)))
            else:
                manifests.append(manifest)
        return Scan(tuple(newest_first(manifests)), tuple(sorted(skipped, key=lambda item: item.name)))

    def list(self) -> Sequence[Manifest]:
        return self.scan().manifests

    def find_latest(self, verify: bool = True) -> Latest:
        scan = self.scan()
        skipped = list(scan.skipped)
        for manifest in scan.manifests:
            problems = self._problems(manifest, digests=False) if verify else ()
            if not problems:
                return Latest(manifest, tuple(skipped))
            skipped.append(Skipped(manifest.name, "; ".join(problems)))
        return Latest(None, tuple(skipped))

    def verify(self, manifest: Manifest) -> Sequence[str]:
        return self._problems(manifest, digests=True)

    def prune(self, keep_last: int, keep: Collection[str] = ()) -> Sequence[str]:
        deleted = []
        for manifest in select_deletions(self.list(), keep_last, keep):
            folder = self.folder_of(manifest)
            unfinished = folder.with_name(f"{folder.name}.tmp")  # no checkpoint any more, if we are killed
            try:
                shutil.rmtree(unfinished, ignore_errors=True)
                folder.rename(unfinished)
                shutil.rmtree(unfinished)
            except OSError as error:
                raise StoreError(f"{folder}: {error.strerror}") from None
            deleted.append(manifest.name)
        return deleted

    def folder_of(self, manifest: Manifest) -> Path:
        return self._folder / f"step-{manifest.step}"

    def _steps(self) -> Iterator[Path]:
        try:
            folders = list(self._folder.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        yield from (folder for folder in folders if _STEP.fullmatch(folder.name) and not folder.is_symlink())

    def _problems(self, manifest: Manifest, *, digests: bool) -> Sequence[str]:
        folder = self.folder_of(manifest)
        problems = ((part, _problem(folder / part.path, part, digests=digests)) for part in manifest.parts)
        return [f"{part.path}: {problem}" for part, problem in problems if problem]


def _problem(path: Path, part: Part, *, digests: bool) -> str:
    """Return what is wrong with one file; empty if nothing is."""
    try:
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode):
            return "is not a regular file"
        if facts.st_size != part.size:
            return f"has {facts.st_size} bytes instead of {part.size}"
        if not digests:
            return ""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return error.strerror or str(error)
    return "" if digest == part.sha256 else "has another digest than the manifest"
