"""The folder of a job's checkpoints, as the containers beside the program see it.

Reading and verifying are those of `argosy_sdk`, so that program, sidecar and init container agree on what a
checkpoint is.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import argosy_sdk
from argosy_sdk import folders, manifest
from argosy_sdk.errors import CheckpointError

MAX_VERIFIED_BYTES = 4 * 1024**3
"""Of larger checkpoints only the sizes of files are verified here; `argosy_sdk.latest` verifies the rest,
with one process for each file."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


class Checkpoint(NamedTuple):
    """A folder with a valid manifest."""

    folder: Path
    step: int
    epoch: int
    """The order that it answers; 0: none."""
    world: int
    digest: str
    size: int
    seconds: float
    created: str
    """As its manifest says; the time of that file if it does not."""
    parent: str = ""
    """The digest of the checkpoint before it, if the program says so."""

    def as_ack(self) -> Mapping[str, object]:
        """Return the fields of an acknowledgement."""
        fields = self._asdict()
        del fields["folder"], fields["parent"]
        return fields


class _Seen(NamedTuple):
    """A folder of a checkpoint, as it was when its manifest was read."""

    changed: int
    """When the manifest was written, in nanoseconds."""
    look: int
    """The number of the look at which it was there first."""
    checkpoint: Checkpoint | None
    """None if files are missing."""


class CheckpointFolder:
    """Finds the checkpoints in a folder; a manifest is read again when it has changed.

    One that is there at a later look is newer than those of earlier looks, whatever the clocks of the nodes
    say that have saved them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, _Seen] = {}
        self._looks = 0

    def find(self) -> list[Checkpoint]:
        """Return the checkpoints with all their files, the newest first."""
        self._looks += 1
        known: dict[Path, _Seen] = {}
        for _, path in folders.newest_first(self._folder):
            try:
                changed = (path / manifest.NAME).stat().st_mtime_ns
            except OSError:
                continue  # no checkpoint, or deleted by another pod at this moment
            last = self._known.get(path)
            is_same = last is not None and last.changed == changed
            known[path] = last if last and is_same else _Seen(changed, self._looks, _read(path))
        self._known = known
        looks = {seen.checkpoint.digest: seen.look for seen in known.values() if seen.checkpoint}
        found = [seen.checkpoint for seen in known.values() if seen.checkpoint]
        order = _order(found)
        return sorted(found, key=lambda each: (looks[each.digest], order(each)), reverse=True)

    def prune(self, keep_last: int) -> list[Checkpoint]:
        """Delete all checkpoints but the newest, and that of the highest step, which programs resume from.

        Returns those that belong to another user, who must delete them.
        """
        found = self.find()
        highest = max((checkpoint.step for checkpoint in found), default=0)
        left: list[Checkpoint] = []
        for checkpoint in found[max(keep_last, 1) :]:
            if checkpoint.step == highest:
                continue
            if not _may_delete(checkpoint.folder):
                left.append(checkpoint)
                continue
            # The name of one that is not complete: what is left of it is never taken for a checkpoint.
            doomed = folders.temporary(self._folder, checkpoint.step)
            try:
                checkpoint.folder.rename(doomed)
            except OSError as error:
                print(f"argosy: {checkpoint.folder} not deleted: {error.strerror}", file=sys.stderr)
                break
            shutil.rmtree(doomed, ignore_errors=True)
        return left


def _may_delete(folder: Path) -> bool:
    return all(os.access(path, os.W_OK | os.X_OK, effective_ids=True) for path in (folder.parent, folder))


def _order(found: Sequence[Checkpoint]) -> Callable[[Checkpoint], tuple[tuple[str, int], ...]]:
    """Return by what checkpoints are sorted: their times, but each comes after the one before it.

    Pods on several nodes save into one folder, and the clocks of nodes differ.
    """
    by_digest = {checkpoint.digest: checkpoint for checkpoint in found}
    keys: dict[str, tuple[tuple[str, int], ...]] = {}

    def key(checkpoint: Checkpoint) -> tuple[tuple[str, int], ...]:
        chain = [checkpoint]
        while (parent := by_digest.get(chain[-1].parent)) is not None and parent.digest not in keys:
            chain.append(parent)
        for each in reversed(chain):
            own = ((each.created, each.step),)
            keys[each.digest] = max(own, (*keys.get(each.parent, ()), *own))
        return keys[checkpoint.digest]

    return key


def find_verified(folder: Path, copies: Path | None = None) -> Checkpoint | None:
    """Return the newest checkpoint that verifies, and print why newer ones do not.

    With `copies`, those of other copies of the program count too: any that has more steps is as good.
    """
    others = sorted(path for path in copies.iterdir() if path.is_dir()) if copies and copies.is_dir() else []
    candidates = [candidate for each in (folder, *others) for candidate in folders.newest_first(each)]
    for _, path in sorted(candidates, key=lambda candidate: candidate[0], reverse=True):  # stable: ours first
        try:
            found = manifest.read(path)
            total = sum(part["size"] for part in found["parts"])
            manifest.verify(path, found, None if total <= MAX_VERIFIED_BYTES else ())
            return _checkpoint(path, found)
        except CheckpointError as error:
            print(f"argosy: skipped: {error}", file=sys.stderr)
    return None


def prepare(folder: Path, link: Path, sdk: Path, copies: Path | None = None) -> int:
    """Make a link to the checkpoint to resume from, if there is one, and copy the SDK."""
    copy_sdk(sdk)
    checkpoint = find_verified(folder, copies)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    if checkpoint is None:
        print("argosy: no checkpoint yet", flush=True)
    else:
        link.symlink_to(checkpoint.folder)
        print(f"argosy: resuming from {checkpoint.folder} (step {checkpoint.step})", flush=True)
    return 0


def copy_sdk(folder: Path) -> None:
    """Copy `argosy_sdk` to where the program can import it."""
    shutil.copytree(Path(argosy_sdk.__file__).parent, folder / "argosy_sdk", dirs_exist_ok=True)


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder; None if there is none."""
    try:
        return _checkpoint(folder, manifest.read(folder))
    except CheckpointError:
        return None


def _read(folder: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder whose files have the sizes of its manifest."""
    try:
        found = manifest.read(folder)
        manifest.verify(folder, found, ())
    except CheckpointError:
        return None
    return _checkpoint(folder, found)


def _checkpoint(folder: Path, found: Mapping[str, object]) -> Checkpoint:
    def number(name: str) -> int:
        value = found.get(name)
        return value if isinstance(value, int) and value >= 0 else 0

    parts, seconds = found["parts"], found.get("seconds")
    assert isinstance(parts, Sequence)
    return Checkpoint(
        folder=folder,
        step=number("step"),
        epoch=number("epoch"),
        world=number("world"),
        digest=manifest.digest_of(dict(found)),
        size=sum(part["size"] for part in parts),
        seconds=max(float(seconds), 0.001) if isinstance(seconds, int | float) and seconds >= 0 else 0.0,
        created=_created(folder, found.get("created")),
        parent=str(found.get("parent", "")),
    )


def _created(folder: Path, written: object) -> str:
    """Return when a checkpoint was complete. Programs without the SDK may leave the time out."""
    try:
        if isinstance(written, str) and _TIME.fullmatch(written):
            datetime.fromisoformat(written.replace("Z", "+00:00"))
            return written
    except ValueError:
        pass  # the operator would not accept it either
    try:
        seconds = (folder / manifest.NAME).stat().st_mtime
    except OSError:
        return ""  # deleted by another pod at this moment
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
