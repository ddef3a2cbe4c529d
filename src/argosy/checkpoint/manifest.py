"""The manifest of a checkpoint: its canonical form, its digest, and the validation of one from elsewhere.

A checkpoint folder has it as `manifest.json`, written by `argosy_sdk` or by any program that follows
docs/users/checkpoints.md. Its content decides which files are read and written, so nothing in it is trusted:
paths must stay within the folder, and sizes and counts are bounded.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

MANIFEST_NAME: Final = "manifest.json"
VERSION: Final = 1
MAX_PARTS: Final = 1_000_000
MAX_NUMBER: Final = 2**53
"""The largest integer that every JSON parser reads exactly."""
MAX_PATH_BYTES: Final = 1024
MAX_NAME_BYTES: Final = 255

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class InvalidManifestError(ValueError):
    """A manifest cannot be used; the message names the field and what is allowed."""


class Part(Struct, frozen=True, gc=False):
    """A file of a checkpoint."""

    path: str
    """Relative to the folder, with `/` between names."""
    rank: int
    size: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    version: int = VERSION
    job: str = ""
    """The uid of the job."""
    attempt: int = 0
    step: int
    world: int
    epoch: int = 0
    """The order that it answers; 0 if nobody asked for it."""
    created: str = ""
    level: str = "App"
    parent: str = ""
    """The digest of the checkpoint before it, if known."""
    seconds: float = 0.0
    """How long it took to save."""
    parts: tuple[Part, ...]
    ranks: tuple[int, ...] = ()
    """The ranks whose files it has; empty means all. Others are in the folders of other pods."""

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(canonical(self)).hexdigest()}"

    @property
    def name(self) -> str:
        """The name in a store: the step, and the first digits of the digest."""
        return f"step-{self.step}-{self.digest.removeprefix('sha256:')[:12]}"

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


def canonical(manifest: Manifest) -> bytes:
    """Return the bytes whose SHA-256 is the digest: sorted keys, no spaces, ASCII only."""
    content = msgspec.to_builtins(manifest)
    if not manifest.ranks:
        del content["ranks"]
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def parse_manifest(raw: bytes) -> Manifest:
    """Return a valid manifest; raises InvalidManifestError."""
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidManifestError(str(error)) from None
    for problem in _problems(manifest):
        raise InvalidManifestError(problem)
    return manifest


def _problems(manifest: Manifest) -> Iterator[str]:
    if manifest.version != VERSION:
        yield f"version: unsupported value {manifest.version}; must be {VERSION}"
    numbers = {"step": (manifest.step, 0), "world": (manifest.world, 1), "attempt": (manifest.attempt, 0)}
    for name, (value, least) in (numbers | {"epoch": (manifest.epoch, 0)}).items():
        if not least <= value <= MAX_NUMBER:
            yield f"{name}: invalid value {value}; must be from {least} to {MAX_NUMBER}"
    if not 0 <= manifest.seconds < float("inf"):
        yield f"seconds: invalid value {manifest.seconds}; must be a number of seconds"
    if manifest.parent and not _DIGEST.fullmatch(manifest.parent):
        yield "parent: must be empty, or sha256: and 64 hexadecimal digits"
    if manifest.created and not _is_time(manifest.created):
        yield f"created: invalid value {manifest.created[:64]!r}; must be a time such as 2026-01-31T12:00:00Z"
    if any(not 0 <= rank < manifest.world for rank in manifest.ranks):
        yield f"ranks: must be from 0 to {manifest.world - 1}"
    yield from _part_problems(manifest)


def _part_problems(manifest: Manifest) -> Iterator[str]:
    least = 0 if manifest.ranks else 1
    if not least <= len(manifest.parts) <= MAX_PARTS:
        yield f"parts: has {len(manifest.parts)} entries; must have from {least} to {MAX_PARTS}"
    files: set[str] = set()
    for number, part in enumerate(manifest.parts):
        where = f"parts[{number}]"
        if problem := path_problem(part.path):
            yield f"{where}.path: invalid value {part.path[:64]!r}; {problem}"
        if part.path in files:
            yield f"{where}.path: {part.path!r} is there twice"
        files.add(part.path)
        if not 0 <= part.size <= MAX_NUMBER:
            yield f"{where}.size: invalid value {part.size}; must be a number of bytes"
        if not _SHA256.fullmatch(part.sha256):
            yield f"{where}.sha256: must be 64 hexadecimal digits"
        if not 0 <= part.rank < manifest.world:
            yield f"{where}.rank: invalid value {part.rank}; must be from 0 to {manifest.world - 1}"
    folders = {path[:end] for path in files for end, letter in enumerate(path) if letter == "/"}
    for path in sorted(files & folders):
        yield f"parts: {path!r} is a file and a folder"


def path_problem(path: str) -> str:
    """Return why a path of a file in a checkpoint is not allowed; empty if it is."""
    names = path.split("/")
    if any(name in ("", ".", "..") for name in names):
        return "must be relative and stay within the folder"
    if not path.isprintable() or "\\" in path:
        return "must have printable characters without backslashes"
    encoded = [len(name.encode("utf-8", "surrogatepass")) for name in names]
    if sum(encoded) + len(names) > MAX_PATH_BYTES or max(encoded) > MAX_NAME_BYTES:
        return f"must be shorter than {MAX_PATH_BYTES} bytes, and each name {MAX_NAME_BYTES}"
    return "is reserved" if path == MANIFEST_NAME else ""


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
