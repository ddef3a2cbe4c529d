"""Resolves volumes to folders of the host, and writes the files of volumes that have content.

Files of ConfigMaps, Secrets, tokens and the downward API are replaced together: they are written to a new
folder, then the symbolic link `..data` is switched to it, so a reader sees either all old or all new files.
"""

import os
import re
import shutil
import stat
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from argosy.local.node.environment import (
    MissingError,
    Sources,
    expand_references,
    field_value,
    resource_value,
)
from argosy.local.node.pod_types import (
    DownwardItem,
    HostPath,
    KeyToPath,
    Pod,
    TokenProjection,
    Volume,
    VolumeMount,
)

_PATH_COMPONENT = re.compile("[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

Files = dict[str, tuple[bytes, int]]
"""Path in the volume, content and mode."""


class VolumeError(Exception):
    """A volume cannot be mounted; the message is recorded in the pod's events."""


class ProjectedToken(NamedTuple):
    """A service account token of a projected volume."""

    volume: str
    projection: TokenProjection


def validate_path_component(name: str) -> str:
    """Return the name, or raise VolumeError if it is not a plain file name."""
    if not _PATH_COMPONENT.fullmatch(name):
        raise VolumeError(f'"{name}": invalid name: must be lower case letters, digits, "-" and "."')
    return name


def projected_tokens(pod: Pod) -> list[ProjectedToken]:
    return [
        ProjectedToken(volume.name, source.service_account_token)
        for volume in pod.spec.volumes
        if volume.projected
        for source in volume.projected.sources
        if source.service_account_token
    ]


def is_written_by_agent(volume: Volume) -> bool:
    """Return True if the agent writes the volume's files and keeps them up to date."""
    return bool(volume.config_map or volume.secret or volume.projected or volume.downward_api)


def render_files(pod: Pod, volume: Volume, sources: Sources, tokens: dict[str, str]) -> Files:
    """Return the files of a volume by path. `tokens` are those of this volume by path."""
    if volume.config_map:
        source = volume.config_map
        data = sources.config_map(source.name)
        return _key_files("configmap", source.name, data, source.items, source.default_mode, source.optional)
    if volume.secret:
        named = volume.secret
        data = sources.secret(named.secret_name)
        return _key_files("secret", named.secret_name, data, named.items, named.default_mode, named.optional)
    if volume.downward_api:
        return _downward_files(pod, volume.downward_api.items, volume.downward_api.default_mode, sources)
    files: Files = {}
    if volume.projected:
        mode = volume.projected.default_mode
        for part in volume.projected.sources:
            if part.config_map:
                data = sources.config_map(part.config_map.name)
                files |= _key_files(
                    "configmap",
                    part.config_map.name,
                    data,
                    part.config_map.items,
                    mode,
                    part.config_map.optional,
                )
            if part.secret:
                data = sources.secret(part.secret.name)
                files |= _key_files(
                    "secret", part.secret.name, data, part.secret.items, mode, part.secret.optional
                )
            if part.downward_api:
                files |= _downward_files(pod, part.downward_api.items, mode, sources)
            if part.cluster_trust_bundle or part.pod_certificate:
                unsupported = "clusterTrustBundle" if part.cluster_trust_bundle else "podCertificate"
                raise VolumeError(f'volume "{volume.name}": {unsupported} is not supported on this node')
            if part.service_account_token:
                path = part.service_account_token.path
                # Only the agent may replace a token, whatever mode the volume has.
                files[path] = (tokens[path].encode(), mode & ~0o022)
    return files


def write_files(folder: Path, files: Files, stamp: str, group: int | None = None) -> bool:
    """Replace the files in a volume's folder; return False if they are unchanged.

    Nothing is written if one of the paths leads out of the volume.
    """
    for path in files:
        _check_path(path)
    current = folder / "..data"
    if current.is_symlink() and _current_files(current) == files:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    fresh = folder / f"..{stamp}"
    fresh.mkdir(mode=0o755)
    for path, (data, mode) in files.items():
        file = fresh / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode | (0o440 if group is not None else 0))
        if group is not None:
            os.chown(file, -1, group)
    old = current.readlink() if current.is_symlink() else None
    link = folder / "..data_tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.rename(current)
    _update_links(folder, {Path(path).parts[0] for path in files})
    if old is not None:
        shutil.rmtree(folder / old, ignore_errors=True)
    return True


def prepare_mount_source(mount: VolumeMount, root: Path, values: dict[str, str]) -> str:
    """Return the host path of a container's mount; create its subPath, which must stay inside the volume."""
    sub = expand_references(mount.sub_path_expr, values) if mount.sub_path_expr else mount.sub_path
    if not sub:
        return str(root)
    if Path(sub).is_absolute() or ".." in Path(sub).parts:
        raise VolumeError(f"subPath {sub!r} of volume {mount.name!r} must stay inside the volume")
    real = (root / sub).resolve()  # before anything is created: a pod may have left links in the volume
    if real != root.resolve() and root.resolve() not in real.parents:
        raise VolumeError(f"subPath {sub!r} of volume {mount.name!r} leads out of the volume")
    if not real.exists():
        real.mkdir(parents=True, mode=0o755)
    return str(real)


def prepare_host_path(source: HostPath) -> Path:
    """Create the file or folder of a hostPath if its type says so, check its type, and return its path."""
    path, kind = Path(source.path), source.type
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise VolumeError(f"hostPath {path}: {error.strerror}") from error
    checks = {
        "Directory": stat.S_ISDIR,
        "DirectoryOrCreate": stat.S_ISDIR,
        "File": stat.S_ISREG,
        "FileOrCreate": stat.S_ISREG,
        "Socket": stat.S_ISSOCK,
        "CharDevice": stat.S_ISCHR,
        "BlockDevice": stat.S_ISBLK,
    }
    if kind in checks and not checks[kind](mode):
        raise VolumeError(f"hostPath type check failed: {path} is not a {_type_name(kind)}")
    return path


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or parts[0].startswith(".."):
        raise VolumeError(f'path "{path}": must be relative, without ".." and not begin with ".."')


def _key_files(
    kind: str, name: str, data: object, items: list[KeyToPath], mode: int, optional: bool
) -> Files:
    if not isinstance(data, dict):
        if optional:
            return {}
        raise MissingError(f'{kind} "{name}" not found')
    if not items:
        return {key: (value, mode) for key, value in data.items()}
    files: Files = {}
    for item in items:
        if item.key not in data:
            if optional:
                continue
            raise MissingError(f"references non-existent {kind} key: {item.key}")
        files[item.path] = (data[item.key], mode if item.mode is None else item.mode)
    return files


def _downward_files(pod: Pod, items: list[DownwardItem], mode: int, sources: Sources) -> Files:
    files: Files = {}
    for item in items:
        if item.field_ref:
            value = field_value(pod, item.field_ref, sources)
        elif item.resource_field_ref:
            value = resource_value(pod, pod.spec.containers[0], item.resource_field_ref, sources)
        else:
            continue
        files[item.path] = (value.encode(), mode if item.mode is None else item.mode)
    return files


def _current_files(folder: Path) -> Files:
    return {
        str(file.relative_to(folder)): (file.read_bytes(), stat.S_IMODE(file.stat().st_mode))
        for file in folder.rglob("*")
        if file.is_file()
    }


def _update_links(folder: Path, names: set[str]) -> None:
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def _type_name(kind: str) -> str:
    names = {"CharDevice": "character device", "BlockDevice": "block device"}
    return names.get(kind, kind.removesuffix("OrCreate").lower())
