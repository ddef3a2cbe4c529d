"""Names of objects in a store.

chunks/<aa>/<sha256>                          content, stored once
checkpoints/step-<n>-<digest>/chunks.json     the chunks of each file
checkpoints/step-<n>-<digest>/manifest.json   written last: now it is a checkpoint
parts/step-<n>-<attempt>-<world>/<rank>.json  files of one pod, until those of all pods are there
uploads/<id>                                  an upload under way
sweep                                         chunks are being deleted
"""

import re
from typing import Final

from argosy.checkpoint.manifest import MANIFEST_NAME, Manifest

CHUNKS: Final = "chunks/"
CHECKPOINTS: Final = "checkpoints/"
PARTS: Final = "parts/"
UPLOADS: Final = "uploads/"
SWEEP: Final = "sweep/now"
SWEEPS: Final = "sweep/"
INDEX_NAME: Final = "chunks.json"

MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
MAX_INDEX_BYTES: Final = 1024 * 1024 * 1024
MAX_MARKER_BYTES: Final = 4096

_MANIFEST = re.compile(rf"{CHECKPOINTS}(step-\d+-[0-9a-f]{{12}})/{re.escape(MANIFEST_NAME)}")
_FOLDER = re.compile(rf"({CHECKPOINTS}[^/]+/).+")


def manifest_key(name: str) -> str:
    return f"{CHECKPOINTS}{name}/{MANIFEST_NAME}"


def index_key(name: str) -> str:
    return f"{CHECKPOINTS}{name}/{INDEX_NAME}"


def name_of_manifest(key: str) -> str:
    """Return the name of the checkpoint whose manifest this is; empty for other objects."""
    match = _MANIFEST.fullmatch(key)
    return match[1] if match else ""


def folder_of(key: str) -> str:
    """Return the folder of an object of a checkpoint."""
    match = _FOLDER.fullmatch(key)
    return match[1] if match else ""


def parts_prefix(manifest: Manifest) -> str:
    """Return the folder for the parts of one save by several pods."""
    return f"{PARTS}step-{manifest.step}-{manifest.attempt}-{manifest.world}/"
