"""Writes container images as OCI archives, which containerd imports.

An archive names all layers of its image but may omit those that the node has: the large layer with the
machine's Python is written once, and the archive with our package, which changes often, is small. Archives
are reproducible.
"""

import hashlib
import io
import json
import marshal
import platform
import sys
import tarfile
import warnings
from collections.abc import Iterable, Mapping
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Final

from msgspec import Struct

from argosy.operator.settings import IMAGE

PAUSE: Final = "localhost/argosy/pause:1"
PYTHON: Final = "localhost/argosy/python:1"
"""The machine's Python and shell, with the dependencies of our package."""
ARGOSY: Final = "localhost/argosy/argosy:1"
"""The same with our package from the clone."""
RELEASED: Final = f"docker.io/{IMAGE}"
"""The image of the chart as the kubelet expands it; the same as ARGOSY."""
LOCAL: Final = "docker.io/library/local:latest"
"""The image `local` of the examples as the kubelet expands it; the same as ARGOSY."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class Layer(Struct, frozen=True):
    path: Path
    digest: str
    size: int

    @classmethod
    def of(cls, path: Path) -> "Layer":
        """A tar file as a layer."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, f"sha256:{digest}", path.stat().st_size)


def write_archive(
    path: Path,
    names: Iterable[str],
    layers: Iterable[Layer],
    *,
    carried: Iterable[Layer] | None = None,
    config: Mapping[str, object],
) -> None:
    """Write an image of these layers, under each of the names; the file has the `carried` layers (all)."""
    layers = tuple(layers)
    system = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    root = {"type": "layers", "diff_ids": [layer.digest for layer in layers]}
    image = _json({**system, "config": config, "rootfs": root})
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", image),
            "layers": [
                {
                    "mediaType": "application/vnd.oci.image.layer.v1.tar",
                    "digest": layer.digest,
                    "size": layer.size,
                }
                for layer in layers
            ],
        }
    )
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest) | {"platform": system}
    index = {
        "schemaVersion": 2,
        "manifests": [entry | {"annotations": {"io.containerd.image.name": name}} for name in names],
    }
    unfinished = path.with_name(f"{path.name}.new")
    with tarfile.open(unfinished, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json(index))
        for content in (manifest, image):
            _add(archive, _blob(_digest(content)), content)
        for layer in layers if carried is None else carried:
            with layer.path.open("rb") as file:
                info = tarfile.TarInfo(_blob(layer.digest))
                info.size = layer.size
                archive.addfile(info, file)
    unfinished.replace(path)


class LayerWriter:
    """Writes a layer: files owned by root, in folders that everyone may enter, with a fixed time.

    Each module of Python gets its bytecode, as in the image of a release: containers can write none, and
    would compile all that they import at every start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}.new")
        self._archive = tarfile.open(self._unfinished, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - closed by done()
        self._seen: set[str] = set()

    def folder(self, target: str, mode: int = 0o755) -> None:
        self._add(target, tarfile.DIRTYPE, mode)

    def link(self, target: str, to: str) -> None:
        self._add(target, tarfile.SYMTYPE, 0o777, link=to)

    def content(self, target: str, content: bytes, mode: int = 0o644) -> None:
        self._add(target, tarfile.REGTYPE, mode, content=content)

    def copy(self, source: Path, target: str) -> None:
        """Add a file, or the target of a link, readable by everyone."""
        mode = 0o755 if source.stat().st_mode & 0o100 else 0o644
        self._add(target, tarfile.REGTYPE, mode, content=source.read_bytes())

    def tree(self, source: Path, target: str, *, without: frozenset[str] = frozenset()) -> None:
        """Add a folder with its contents, except names in `without`; links stay links."""
        for entry in sorted(source.iterdir()):
            if entry.name in without:
                continue
            place = f"{target}/{entry.name}"
            if entry.is_symlink():
                self.link(place, str(entry.readlink()))
            elif entry.is_dir():
                self.tree(entry, place, without=without)
            elif entry.is_file():
                self.copy(entry, place)

    def done(self) -> Layer:
        """Complete the layer and return it."""
        self._archive.close()
        self._unfinished.replace(self._path)
        return Layer.of(self._path)

    def _add(self, target: str, kind: bytes, mode: int, *, link: str = "", content: bytes = b"") -> None:
        name = target.strip("/")
        if name in self._seen:
            return
        parent = name.rpartition("/")[0]
        if parent and parent not in self._seen:
            self.folder(parent)
        self._seen.add(name)
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.linkname, info.size = kind, mode, link, len(content)
        self._archive.addfile(info, io.BytesIO(content))
        if kind == tarfile.REGTYPE and name.endswith(".py") and (compiled := _bytecode(content, f"/{name}")):
            folder, _, module = name.rpartition("/")
            file = f"{module.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
            self._add(f"{folder}/__pycache__/{file}", kind, 0o644, content=compiled)


def _bytecode(source: bytes, path: str) -> bytes:
    """The compiled file of a module, which Python uses without a look at the source; empty if invalid.

    Templates and test data of packages can have names like modules.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return b""
    unchecked = (1).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked + source_hash(source) + marshal.dumps(code)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))
