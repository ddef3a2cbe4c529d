"""Builds the image of a container's checkpoint: the tar of the checkpoint is its only layer.

A container runtime that restores checkpoints recognizes such an image by the annotations of its manifest. The
same layer, annotations and time give the same bytes, so an image that is built again after a crash has the
digest that it had before.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"

OWNER = "training.dcnlab.com/owner"
"""`<namespace>/<name>` of the job, so that no job takes the checkpoint of another for its own."""
CONTAINER = "org.criu.checkpoint.container.name"


class Layer(Struct, frozen=True):
    """The tar of a checkpoint, which may be compressed."""

    digest: str
    size: int
    diff_id: str
    """Digest of the uncompressed tar."""
    compression: Literal["", "gzip"] = ""

    @property
    def media_type(self) -> str:
        return f"{LAYER_TYPE}+{self.compression}" if self.compression else LAYER_TYPE


class Source(Struct, frozen=True, kw_only=True):
    """The container that was checkpointed."""

    container: str
    base_image: str
    """The image that the container was started from, which is needed again when it is restored."""
    pod: str
    namespace: str
    engine: str
    """Name of the container runtime."""
    owner: str = ""
    """`<namespace>/<name>` of the job; empty if there is none."""


class BuiltImage(Struct, frozen=True):
    """The manifest of an image and the configuration that it refers to, besides the layer."""

    config: bytes
    manifest: bytes
    layer: Layer

    @property
    def digest(self) -> str:
        return _digest(self.manifest)

    @property
    def config_digest(self) -> str:
        return _digest(self.config)


def build_image(layer: Layer, source: Source, created: datetime, architecture: str) -> BuiltImage:
    """Return the image of a checkpoint."""
    at = created.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    config = _encode(
        {
            "created": at,
            "architecture": architecture,
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
            "history": [{"created": at, "comment": f"checkpoint of container {source.container}"}],
        }
    )
    manifest = _encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}],
            "annotations": annotations(source),
        }
    )
    return BuiltImage(config, manifest, layer)


def annotations(source: Source) -> dict[str, str]:
    """Return the annotations of the manifest, under the keys of present and of older runtimes."""
    listed = {
        CONTAINER: source.container,
        "org.criu.checkpoint.pod.name": source.pod,
        "org.criu.checkpoint.pod.namespace": source.namespace,
        "org.criu.checkpoint.rootfsImageName": source.base_image,
        "org.criu.checkpoint.engine.name": source.engine,
        "io.kubernetes.cri-o.annotations.checkpoint.name": source.container,
        "io.kubernetes.cri-o.annotations.checkpoint.rootfsImageName": source.base_image,
        OWNER: source.owner,
    }
    return {name: value for name, value in listed.items() if value}


def is_of_owner(manifest_annotations: Mapping[str, str], owner: str) -> bool:
    """Return True unless the image is the checkpoint of another job."""
    return manifest_annotations.get(OWNER, owner) == owner


def archive_files(built: BuiltImage, name: str) -> dict[str, bytes]:
    """Return the files of an OCI archive of the image, except for the layer: `blobs/sha256/<digest>`."""
    descriptor = {
        "mediaType": MANIFEST_TYPE,
        "digest": built.digest,
        "size": len(built.manifest),
        "annotations": {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name,
        },
    }
    index = {"schemaVersion": 2, "manifests": [descriptor]}
    return {
        "oci-layout": _encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": _encode(index),
        blob_path(built.digest): built.manifest,
        blob_path(built.config_digest): built.config,
    }


def blob_path(digest: str) -> str:
    """Return where an OCI archive has a blob."""
    return f"blobs/{digest.replace(':', '/')}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
