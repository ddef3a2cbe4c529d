"""Packs and unpacks the files of a container's checkpoint.

A checkpoint is one tar in the layout of container runtimes (`checkpoint/` with CRIU's files, `spec.dump`,
`config.dump`, `rootfs-diff.tar`), and with what a restore needs in addition: `argosy.json`, and in `files/`
the folders that are not part of the root. Owners, modes, sparse files and the marks of overlays are kept.
Standard library only.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypedDict

METADATA: Final = "argosy.json"
ROOT_CHANGES: Final = "rootfs-diff.tar"
VERSION: Final = 1

_ATTRIBUTES: Final = (
    "--xattrs",
    "--xattrs-include=*",
    *(f"--xattrs-exclude=trusted.overlay.{name}" for name in ("origin", "impure", "uuid")),
    "--numeric-owner",
)
_CHANGED_MEANWHILE: Final = 1
"""Exit code of tar if another container wrote to a file that it was reading."""

PartKind = Literal["root", "private", "run", "shm", "volume"]


class CheckpointError(Exception):
    """A container cannot be checkpointed or restored; the message says why."""


class Part(TypedDict):
    """A folder of the container, packed in a tar of its own."""

    kind: PartKind
    name: str
    """The path of a private folder in the container, or the name of a volume."""
    file: str


class Metadata(TypedDict):
    """The contents of argosy.json."""

    version: int
    namespace: str
    pod: str
    uid: str
    node: str
    container: str
    image: str
    created: str
    criu: str
    kernel: str
    machine: str
    pid: int
    """The first process, in the PID namespace of the container."""
    ids: list[int]
    """Every process, thread, process group and session there."""
    pipes: dict[str, int]
    """The inode of the pipe of each standard stream, by its number."""
    parts: list[Part]


def read_metadata(folder: Path) -> Metadata | None:
    """Return what is known of the checkpoint in a folder; None if there is none."""
    try:
        text = (folder / METADATA).read_bytes()
    except OSError:
        return None
    try:
        metadata: Metadata = json.loads(text)
        if metadata["version"] != VERSION:
            raise CheckpointError(f"{METADATA}: unsupported version {metadata['version']}: must be {VERSION}")
        missing = set(Metadata.__annotations__) - set(metadata)
    except (ValueError, TypeError, KeyError):
        raise CheckpointError(f"{METADATA}: not the description of a checkpoint") from None
    if missing:
        raise CheckpointError(f"{METADATA}: {', '.join(sorted(missing))} missing")
    return metadata


def pack_folder(source: Path, target: Path, *, exclude: Sequence[str] = ()) -> None:
    """Pack a folder without the file systems mounted in it."""
    excluded = [f"--exclude={name}" for name in exclude]
    _tar("--create", "--file", target, "--sparse", "--one-file-system", *excluded, "-C", source, ".")


def unpack_folder(source: Path, target: Path, *, exclude: Sequence[str] = ()) -> None:
    """Unpack a folder over what is there."""
    target.mkdir(parents=True, exist_ok=True)
    excluded = [f"--exclude={name}" for name in exclude]
    _tar("--extract", "--same-owner", "--preserve-permissions", "--file", source, *excluded, "-C", target)


def pack_checkpoint(folder: Path, target: Path) -> None:
    """Pack a complete checkpoint: the tar has its name only when it is on disk, and only root may read it."""
    partial = target.with_name(f"{target.name}.partial")
    partial.touch(mode=0o600)
    try:
        _tar("--create", "--file", partial, "--sparse", "-C", folder, ".")
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_unfinished(target: Path) -> None:
    """Remove what a process left behind that was killed while it made this checkpoint."""
    _remove_folder(target.with_name(f"{target.name}.tmp"))
    target.with_name(f"{target.name}.partial").unlink(missing_ok=True)


def unpack_checkpoint(source: Path, target: Path) -> None:
    """Unpack the tar of a checkpoint into a folder that exists only when it is complete."""
    partial = target.with_name(f"{target.name}.partial")
    _remove_folder(partial)
    partial.mkdir(parents=True, mode=0o700)
    try:
        _tar("--extract", "--no-same-owner", "--file", source, "-C", partial)
        _remove_folder(target)
        partial.rename(target)
    except BaseException:
        _remove_folder(partial)
        raise


def _remove_folder(folder: Path) -> None:
    import shutil  # not by the zygote, which stays small

    shutil.rmtree(folder, ignore_errors=True)


def _tar(*words: str | Path) -> None:
    import subprocess

    command = ["tar", *_ATTRIBUTES, *map(str, words)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CheckpointError("tar is not installed") from None
    changed = done.returncode == _CHANGED_MEANWHILE and "--create" in words
    if done.returncode != 0 and not changed:
        lines = done.stderr.strip().splitlines()
        raise CheckpointError(lines[0] if lines else f"tar ended with {done.returncode}")
