"""Reads the manifest of a checkpoint folder."""

from pathlib import Path

from argosy.checkpoint.drivers.layout import MAX_MANIFEST_BYTES
from argosy.checkpoint.manifest import MANIFEST_NAME, InvalidManifestError, Manifest, parse_manifest


def read_manifest(folder: Path) -> Manifest:
    """Return the valid manifest of a folder; raises InvalidManifestError."""
    path = folder / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise InvalidManifestError(f"{path}: {error.strerror}") from None
    if len(raw) > MAX_MANIFEST_BYTES:
        raise InvalidManifestError(f"{path}: longer than {MAX_MANIFEST_BYTES} bytes")
    try:
        return parse_manifest(raw)
    except InvalidManifestError as error:
        raise InvalidManifestError(f"{path}: {error}") from None
