"""manifest.json of a checkpoint folder: what it lists, how it is written, and how a folder is verified.

The file is written last, so a folder without a valid one is no checkpoint. Its content may come from
anywhere: paths that leave the folder, and symbolic links, are refused.
"""

import hashlib
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Container, Dict, Iterable, List, Optional

from argosy_sdk.errors import CheckpointError

NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OWNER = re.compile(r"rank-(\d+)(?![0-9a-zA-Z])")
_THREADS = 4

Manifest = Dict[str, Any]
Part = Dict[str, Any]


def digest_of(manifest: Manifest) -> str:
    """Return the digest of a checkpoint: that of its manifest with sorted keys and without spaces."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def owner_of(path: str) -> Optional[int]:
    """Return the rank in a name such as `rank-3.pt` or `rank-3/…`; None for other names."""
    match = _OWNER.match(path)
    return int(match[1]) if match else None


def list_files(folder: Path) -> List[str]:
    """Return the relative paths of all files in a folder; only regular files are allowed."""
    paths = []
    for parent, folders, files in os.walk(str(folder)):
        for name in folders + files:
            path = Path(parent, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue  # Another rank has renamed it.
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise CheckpointError(f"{path}: a checkpoint must have regular files only")
        paths += [str(Path(parent, name).relative_to(folder)) for name in files]
    return sorted(paths)


def make_parts(folder: Path, paths: Iterable[str], rank: int) -> List[Part]:
    """Return size and digest of files, and flush them to the disk."""

    def make_part(path: str) -> Part:
        with (folder / path).open("rb") as file:
            sha256 = _sha256(file)
            os.fsync(file.fileno())
            size = file.tell()
        return {"path": path, "rank": rank, "size": size, "sha256": sha256}

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(make_part, paths))


def write_json(path: Path, content: Any) -> None:
    """Replace a file by JSON in one step, flushed to the disk."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w") as file:
        json.dump(content, file, sort_keys=True, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read(folder: Path) -> Manifest:
    """Return the manifest of a folder; raises CheckpointError if it is missing or invalid."""
    try:
        with (folder / NAME).open("rb") as file:
            content = json.loads(file.read(MAX_MANIFEST_BYTES))
        problem = _problem(content) if isinstance(content, dict) else "must be an object"
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: no {NAME}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        raise CheckpointError(f"{folder / NAME}: {problem}")
    manifest: Manifest = content
    return manifest


def verify(folder: Path, manifest: Manifest, ranks: Optional[Container[int]] = None) -> None:
    """Compare a folder with its manifest: all sizes, and the digests of the ranks, or of all.

    Raises CheckpointError for the first difference.
    """

    def verify_part(part: Part) -> str:
        path = folder / part["path"]
        if any(parent.is_symlink() for parent in (path, *path.parents[: part["path"].count("/")])):
            return f"{path}: is a symbolic link"
        try:
            size = path.stat().st_size
            if size != part["size"]:
                return f"{path}: has {size} bytes; must have {part['size']}"
            if ranks is not None and part["rank"] not in ranks:
                return ""
            with path.open("rb") as file:
                return (
                    "" if _sha256(file) == part["sha256"] else f"{path}: has another digest than the manifest"
                )
        except OSError as error:
            return f"{path}: {error.strerror}"

    with ThreadPoolExecutor(_THREADS) as pool:
        for problem in pool.map(verify_part, manifest["parts"]):
            if problem:
                raise CheckpointError(problem)


def _problem(manifest: Manifest) -> str:
    """Return why a manifest cannot be trusted; empty if it can."""
    version = manifest.get("version", 1)
    if version != 1:
        return f"version: unsupported value {version!r}; must be 1"
    step, world = manifest["step"], manifest["world"]
    if not isinstance(step, int) or not isinstance(world, int) or step < 0 or world < 1:
        return "step and world: must be natural numbers"
    for part in manifest["parts"]:
        path, names = part["path"], part["path"].split("/")
        if path.startswith("/") or "\0" in path or any(name in ("", ".", "..") for name in names):
            return f"parts: invalid path {path!r}: must stay within the folder"
        if not isinstance(part["size"], int) or not _SHA256.fullmatch(part["sha256"]):
            return f"parts: {path}: invalid size or sha256"
        if part["rank"] not in range(world):
            return f"parts: {path}: invalid rank {part['rank']!r}: must be from 0 to {world - 1}"
    return ""


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(_BLOCK_BYTES), b""):
        digest.update(block)
    return digest.hexdigest()
