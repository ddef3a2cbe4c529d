"""Opens the store of a URI.

file:///folder                      a folder of this machine
pvc://claim/folder                  a volume, where ARGOSY_PVC_ROOT/<claim> is its mount point
s3://bucket/prefix                  any S3 server, with AWS_ENDPOINT_URL
gs://bucket/prefix                  Google Cloud Storage
az://container/prefix               Azure Blob Storage
oci://registry/repository           an OCI registry
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from argosy.checkpoint.drivers.buckets import Bucket
from argosy.checkpoint.drivers.folder_bucket import FolderBucket
from argosy.checkpoint.drivers.step_folders import StepFolders
from argosy.checkpoint.image_names import InvalidImageNameError, parse_store
from argosy.checkpoint.store import CheckpointList, Store, StoreError

if TYPE_CHECKING:
    from argosy.checkpoint.drivers.copies import CopyFolders

PVC_ROOT: Final = "ARGOSY_PVC_ROOT"
DEFAULT_PVC_ROOT: Final = "/run/argosy/volumes"
CLOUDS: Final = ("s3", "gs", "az")
SCHEMES: Final = ("file", "pvc", *CLOUDS, "oci")

_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{0,254}")


def open_store(uri: str, credentials: Mapping[str, str] = {}) -> Store:
    """Return the store of a job's checkpoints; raises StoreError if the URI cannot be used.

    `credentials` have the names of environment variables and take precedence over those. Nothing is connected
    before the first use.
    """
    try:
        if uri.startswith("oci://"):
            return _open_registry(uri, credentials)
        from argosy.checkpoint.drivers.object_store import ObjectStore
    except ModuleNotFoundError as error:
        raise StoreError(f"{error.name} is not installed; pip install 'argosy[checkpoint]'") from None
    return ObjectStore(open_bucket(uri, credentials))


def open_copies(uri: str, own: str, credentials: Mapping[str, str] = {}) -> "CopyFolders":
    """Return the stores of all copies of a program, in the folders below a URI; `own` is the name of one."""
    try:
        from argosy.checkpoint.drivers.copies import CopyFolders
    except ModuleNotFoundError as error:
        raise StoreError(f"{error.name} is not installed; pip install 'argosy[checkpoint]'") from None
    top = open_bucket(uri, credentials)
    return CopyFolders(top, lambda name: open_bucket(f"{uri.rstrip('/')}/{quote(name)}", credentials), own)


def open_checkpoints(uri: str, credentials: Mapping[str, str] = {}) -> CheckpointList:
    """Return the checkpoints at a URI: a store, or the folder of a training with a store file:// or pvc://."""
    if uri.partition("://")[0] in ("file", "pvc"):
        bucket = open_bucket(uri, credentials)
        if isinstance(bucket, FolderBucket) and (folders := StepFolders(bucket.root, uri)).exist():
            return folders
    return open_store(uri, credentials)


def open_bucket(uri: str, credentials: Mapping[str, str] = {}) -> Bucket:
    """Return the place for objects of a URI; raises StoreError if it cannot be used."""
    parsed = urlsplit(uri)
    if parsed.scheme not in SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise StoreError(f"{uri}: unknown scheme; must begin with one of {schemes}")
    if parsed.query or parsed.fragment or "@" in parsed.netloc:
        raise StoreError(f"{parsed.scheme}:// URI: must have no user, password, query or fragment")
    path = _clean(uri, parsed.path)
    if parsed.scheme == "file":
        return FolderBucket(_file_path(uri, parsed.netloc, path), uri)
    if parsed.scheme == "pvc":
        return FolderBucket(_volume_path(uri, parsed.netloc, path, credentials), uri)
    if not _BUCKET.fullmatch(parsed.netloc):
        raise StoreError(f"{uri}: invalid bucket {parsed.netloc!r}; must be {parsed.scheme}://bucket/prefix")
    try:
        from argosy.checkpoint.drivers import cloud_bucket
    except ModuleNotFoundError as error:
        raise StoreError(f"{error.name} is not installed; pip install 'argosy[checkpoint]'") from None
    return cloud_bucket.open_bucket(parsed.scheme, parsed.netloc, path.strip("/"), uri, credentials)


def _open_registry(uri: str, credentials: Mapping[str, str]) -> Store:
    from argosy.checkpoint.drivers.registry_connection import RegistryConnection, find_authority, find_login
    from argosy.checkpoint.drivers.registry_store import RegistryStore

    try:
        repository = parse_store(uri)
    except InvalidImageNameError as error:
        raise StoreError(f"{uri}: {error}") from None
    login, authority = find_login(repository.registry, credentials), find_authority(credentials)
    return RegistryStore(RegistryConnection(repository, login, uri, authority))


def _file_path(uri: str, host: str, path: str) -> Path:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise StoreError(f"{uri}: must be file:/// and an absolute path")
    return Path(path)


def _volume_path(uri: str, claim: str, path: str, credentials: Mapping[str, str]) -> Path:
    root = Path(credentials.get(PVC_ROOT) or os.environ.get(PVC_ROOT) or DEFAULT_PVC_ROOT) / claim
    if not claim or not root.is_dir():
        raise StoreError(
            f"{uri}: {root} does not exist; mount the claim there, "
            f"or set {PVC_ROOT} to the folder of mount points"
        )
    return root / path.lstrip("/")


def _clean(uri: str, path: str) -> str:
    decoded = unquote(path)
    if ".." in decoded.split("/") or "\0" in decoded:
        raise StoreError(f"{uri}: the path must not have ..")
    return decoded
