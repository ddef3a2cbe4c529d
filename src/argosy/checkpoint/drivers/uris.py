"""Opens the store of a URI.

file:///folder                      a folder of this machine
pvc://claim/folder                  a volume, where ARGOSY_PVC_ROOT/<claim> is its mount point
s3://bucket/prefix                  any S3 server, with AWS_ENDPOINT_URL
gs://bucket/prefix                  Google Cloud Storage
az://container/prefix               Azure Blob Storage
oci://registry/repository           an OCI registry
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from argosy.checkpoint.drivers.folder_bucket import FolderBucket
from argosy.checkpoint.drivers.object_store import ObjectStore
from argosy.checkpoint.store import Store, StoreError

PVC_ROOT: Final = "ARGOSY_PVC_ROOT"
DEFAULT_PVC_ROOT: Final = "/run/argosy/volumes"
SCHEMES: Final = ("file", "pvc")


def open_store(uri: str, credentials: Mapping[str, str] = {}) -> Store:
    """Return the store of a job's checkpoints; raises StoreError if the URI cannot be used.

    `credentials` take precedence over the environment.
    """
    parsed = urlsplit(uri)
    if parsed.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise StoreError(f"{uri}: unknown scheme; must begin with one of {known}")
    if parsed.query or parsed.fragment or parsed.password:
        raise StoreError(f"{parsed.scheme}://{parsed.hostname}: must have no password, query or fragment")
    if parsed.scheme == "file":
        return ObjectStore(FolderBucket(_file_path(uri, parsed.netloc, parsed.path), uri))
    return ObjectStore(FolderBucket(_volume_path(uri, parsed.netloc, parsed.path, credentials), uri))


def _file_path(uri: str, host: str, path: str) -> Path:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise StoreError(f"{uri}: must be file:/// and an absolute path")
    return Path(_clean(uri, path))


def _volume_path(uri: str, claim: str, path: str, credentials: Mapping[str, str]) -> Path:
    root = Path(credentials.get(PVC_ROOT) or os.environ.get(PVC_ROOT) or DEFAULT_PVC_ROOT) / claim
    if not claim or not root.is_dir():
        raise StoreError(
            f"{uri}: {root} does not exist; mount the claim there, "
            f"or set {PVC_ROOT} to the folder of mount points"
        )
    return root / _clean(uri, path).lstrip("/")


def _clean(uri: str, path: str) -> str:
    decoded = unquote(path)
    if ".." in decoded.split("/") or "\0" in decoded:
        raise StoreError(f"{uri}: the path must not have ..")
    return decoded
