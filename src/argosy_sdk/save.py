"""Saves one checkpoint from several processes that share a folder.

The leader writes a random id into `.save`. Each other rank writes its files, then its marker
`.rank-<r>.json` with their parts and that id, and waits until the leader has renamed the folder. The leader
takes only markers with its id: one that an earlier process of the rank has left does not count, and a rank
that has used the id of an earlier leader sees the new one and writes its marker again.
"""

import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from argosy_sdk import folders, manifest
from argosy_sdk.environment import Place
from argosy_sdk.errors import CheckpointError
from argosy_sdk.manifest import Manifest, Part

_LEADER_FILE = ".save"
_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.01, 0.2


class Save:
    """Saves one checkpoint together with the same object in the other processes."""

    def __init__(self, directory: Path, step: int, place: Place, timeout: float) -> None:
        self.directory = directory
        self.step = step
        self.place = place
        self.folder = folders.temporary(directory, step)
        self._timeout = timeout
        self._id = secrets.token_hex(8)

    def begin(self) -> None:
        """Create the folder, and delete what earlier processes have left in it.

        Other ranks may have begun already, so only files of this rank and, by the leader, errors are deleted.
        """
        if self.place.members == 1:
            shutil.rmtree(str(self.folder), ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in list(self.folder.iterdir()):
            if manifest.owner_of(path.name) == self.place.rank or path == self._marker(self.place.rank):
                _remove(path)
        if self.place.leader:
            for rank in range(self.place.world):
                if (self._read(self._marker(rank)) or {}).get("error"):
                    _remove(self._marker(rank))
            manifest.write_json(self.folder / _LEADER_FILE, {"id": self._id})

    def commit(self, described: Manifest) -> Optional[Manifest]:
        """Publish the checkpoint, whose manifest lacks only its parts and ranks.

        Returns the complete manifest on the leader and None on the others.
        """
        parts = self._own_parts()
        if not self.place.leader:
            self._hand_over(parts)
            return None
        markers = self._collect()
        ranks = sorted([*markers, self.place.rank])
        parts += [part for marker in markers.values() for part in marker["parts"]]
        listed = {part["path"] for part in parts}
        unlisted = [path for path in self._written_files() if path not in listed]
        parts += manifest.make_parts(self.folder, unlisted, self.place.rank)
        if not parts and len(ranks) == self.place.world:
            raise CheckpointError(f"{self.folder}: no rank has written a file")
        parts.sort(key=lambda part: str(part["path"]))
        complete = {**described, "parts": parts}
        if len(ranks) < self.place.world:
            complete["ranks"] = ranks
        for path in self.folder.iterdir():
            if _is_coordination_file(path.name):
                path.unlink()
        manifest.write_json(self.folder / manifest.NAME, complete)
        for parent, _, _ in os.walk(str(self.folder)):
            folders.flush(Path(parent))
        folders.publish(self.directory, self.step)
        return complete

    def abandon(self, error: BaseException) -> None:
        """Give the checkpoint up: the leader removes the folder, another rank reports the error to it."""
        try:
            if self.place.leader:
                folders.abandon(self.directory, self.step)
            elif self.folder.exists():
                manifest.write_json(
                    self._marker(self.place.rank), {"error": f"{type(error).__name__}: {error}"}
                )
        except OSError:
            pass  # The leader's wait has a deadline.

    def _own_parts(self) -> List[Part]:
        own = [
            path for path in manifest.list_files(self.folder) if manifest.owner_of(path) == self.place.rank
        ]
        try:
            return manifest.make_parts(self.folder, own, self.place.rank)
        except FileNotFoundError:
            if self.place.leader or self.folder.exists():
                raise
            raise self._abandoned_error() from None

    def _abandoned_error(self) -> CheckpointError:
        return CheckpointError(f"step {self.step}: the first rank has given this checkpoint up")

    def _written_files(self) -> List[str]:
        return [path for path in manifest.list_files(self.folder) if not _is_coordination_file(path)]

    def _collect(self) -> Dict[int, Dict[str, Any]]:
        """Wait for the markers of all other ranks, and return them by rank."""
        markers: Dict[int, Dict[str, Any]] = {}
        pause = _Pause(self._timeout)
        others = [rank for rank in range(self.place.world) if rank != self.place.rank]
        while len(markers) < self.place.members - 1:
            for rank in others:
                marker = self._read(self._marker(rank)) or {}
                if marker.get("error"):
                    raise CheckpointError(f"step {self.step}: rank {rank} failed: {marker['error']}")
                if marker.get("id") == self._id:
                    markers[rank] = marker
            if len(markers) < self.place.members - 1 and not pause.wait():
                missing = [rank for rank in others if rank not in markers]
                names = ", ".join(map(str, missing[:10]))
                raise CheckpointError(
                    f"step {self.step}: ranks without files after {self._timeout:g} s: {names}"
                )
        return markers

    def _hand_over(self, parts: List[Part]) -> None:
        """Give the parts to the leader, and wait until it has published or removed the folder."""
        pause, written_id = _Pause(self._timeout), ""
        while self.folder.exists():
            leader_id = str((self._read(self.folder / _LEADER_FILE) or {}).get("id", ""))
            if leader_id and leader_id != written_id:
                try:
                    manifest.write_json(self._marker(self.place.rank), {"id": leader_id, "parts": parts})
                except FileNotFoundError:
                    break
                written_id = leader_id
            if not pause.wait():
                raise CheckpointError(
                    f"step {self.step}: the first rank has not published it in {self._timeout:g} s"
                )
        final = folders.published(self.directory, self.step) / manifest.NAME
        if not written_id or not final.exists():
            raise self._abandoned_error()

    def _marker(self, rank: int) -> Path:
        return self.folder / f".rank-{rank}.json"

    @staticmethod
    def _read(path: Path) -> Optional[Dict[str, Any]]:
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None


class _Pause:
    """Waits for growing times, until a deadline."""

    def __init__(self, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._seconds = _SHORTEST_WAIT_SECONDS

    def wait(self) -> bool:
        """Wait; returns False if the deadline has passed."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(self._seconds, left))
        self._seconds = min(self._seconds * 2, _LONGEST_WAIT_SECONDS)
        return True


def _is_coordination_file(path: str) -> bool:
    """Return True for the files of the leader and of ranks that are not part of the checkpoint."""
    return (
        path == _LEADER_FILE
        or (path.startswith(".rank-") and path.endswith((".json", ".json.new")))
        or path == f"{_LEADER_FILE}.new"
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(str(path))
    else:
        path.unlink()
