"""Validates volumes and volume mounts of pods: no path leads out of its volume.

As in Kubernetes, mount paths and names of claims are not validated here; the node checks them.
"""

from collections.abc import Iterator, Sequence

from argosy.local.schema.codec.quantity import value_of
from argosy.local.schema.errors import FieldError, forbidden, invalid, not_found, not_supported, required
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str, is_integer
from argosy.local.schema.validation.containers import field_source_errors

_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
_ONE_SOURCE = "one of fieldRef and resourceFieldRef is required"
_HOST_TYPES = (
    *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"),
)
_VOLUME_FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"),
)
_RESOURCES = (
    *("limits.cpu", "limits.ephemeral-storage", "limits.memory"),
    *("requests.cpu", "requests.ephemeral-storage", "requests.memory"),
)
_PROJECTIONS = ("secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle")
_MIN_TOKEN_SECONDS, _MAX_TOKEN_SECONDS = 600, 1 << 32


def source_errors(volume: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of the source of a volume."""
    for kind, source in volume.items():
        if not isinstance(source, dict):
            continue
        where = f"{path}.{kind}"
        match kind:
            case "emptyDir":
                limit = source.get("sizeLimit")
                if isinstance(limit, str) and value_of(limit) < 0:
                    yield forbidden(f"{where}.sizeLimit", "SizeLimit field must be a valid resource quantity")
            case "hostPath":
                yield from _host_errors(source, where)
            case "configMap" | "secret":
                field = "name" if kind == "configMap" else "secretName"
                if not source.get(field):
                    yield required(f"{where}.{field}")
                yield from _mode_errors(source.get("defaultMode"), f"{where}.defaultMode")
                yield from _item_errors(source, where)
            case "downwardAPI":
                yield from _mode_errors(source.get("defaultMode"), f"{where}.defaultMode")
                yield from _pod_file_errors(source, where)
            case "projected":
                yield from _mode_errors(source.get("defaultMode"), f"{where}.defaultMode")
                yield from _projection_errors(get_maps(source, "sources"), where)
            case "persistentVolumeClaim":
                if not source.get("claimName"):
                    yield required(f"{where}.claimName")


def mount_errors(mounts: Sequence[Json], path: str, volumes: set[object]) -> Iterator[FieldError]:
    """Yield the errors of the volume mounts of a container."""
    paths: set[object] = set()
    for index, mount in enumerate(mounts):
        where = f"{path}[{index}]"
        if not mount.get("name"):
            yield required(f"{where}.name")
        elif mount["name"] not in volumes:
            yield not_found(f"{where}.name", mount["name"])
        if not mount.get("mountPath"):
            yield required(f"{where}.mountPath")
        elif mount["mountPath"] in paths:
            yield invalid(f"{where}.mountPath", mount["mountPath"], "must be unique")
        paths.add(mount.get("mountPath"))
        inside, expression = get_str(mount, "subPath"), get_str(mount, "subPathExpr")
        if inside:
            yield from descending_path_errors(
                inside, f"{path}.subPath"
            )  # as in Kubernetes, without the index
        if inside and expression:
            message = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{where}.subPathExpr", expression, message)
        if expression:
            yield from descending_path_errors(expression, f"{path}.subPathExpr")


def descending_path_errors(value: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of a path that must be relative and not lead up."""
    if value.startswith("/"):
        yield invalid(path, value, "must be a relative path")
    if ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def _file_path_errors(value: str, path: str) -> Iterator[FieldError]:
    """Yield the errors of the path of a file that the node writes; names that start with `..` are its own."""
    if not value:
        yield required(path)
    yield from descending_path_errors(value, path)
    if value.startswith("..") and not value.startswith("../"):
        yield invalid(path, value, "must not start with '..'")


def _host_errors(source: Json, path: str) -> Iterator[FieldError]:
    where, kind = get_str(source, "path"), get_str(source, "type")
    if not where:
        yield required(f"{path}.path")
        return
    if ".." in where.split("/"):
        yield invalid(f"{path}.path", where, "must not contain '..'")
    if kind not in _HOST_TYPES:
        yield not_supported(f"{path}.type", kind, _HOST_TYPES)


def _mode_errors(mode: object, path: str) -> Iterator[FieldError]:
    if is_integer(mode) and not 0 <= mode <= 0o777:
        yield invalid(path, mode, _MODE)


def _item_errors(source: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of keys of a ConfigMap or Secret and of the files they become."""
    for index, item in enumerate(get_maps(source, "items")):
        where = f"{path}.items[{index}]"
        if not item.get("key"):
            yield required(f"{where}.key")
        yield from _file_path_errors(get_str(item, "path"), f"{where}.path")
        yield from _mode_errors(item.get("mode"), f"{where}.mode")


def _pod_file_errors(source: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of files with fields of the pod; as in Kubernetes, paths do not contain the item."""
    for item in get_maps(source, "items"):
        yield from _file_path_errors(get_str(item, "path"), f"{path}.path")
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if isinstance(field, dict):
            yield from field_source_errors(field, f"{path}.fieldRef", _VOLUME_FIELDS)
            if isinstance(resource, dict):
                message = "fieldRef and resourceFieldRef can not be specified simultaneously"
                yield invalid(path, "resource", message)
        elif isinstance(resource, dict):
            yield from _resource_errors(resource, f"{path}.resourceFieldRef")
        else:
            yield required(path, _ONE_SOURCE)
        yield from _mode_errors(item.get("mode"), f"{path}.mode")


def _resource_errors(reference: Json, path: str) -> Iterator[FieldError]:
    name = get_str(reference, "resource")
    if not get_str(reference, "containerName"):
        yield required(f"{path}.containerName")
    elif not name:
        yield required(f"{path}.resource")
    elif name not in _RESOURCES and not name.partition(".")[2].startswith("hugepages-"):
        yield not_supported(f"{path}.resource", name, _RESOURCES)


def _projection_errors(sources: Sequence[Json], path: str) -> Iterator[FieldError]:
    taken: set[str] = set()
    for index, source in enumerate(sources):
        where = f"{path}.sources[{index}]"
        kinds = [kind for kind in _PROJECTIONS if isinstance(source.get(kind), dict)]
        for _ in kinds[1:]:
            yield forbidden(where, "may not specify more than 1 volume type per source")
        for kind in kinds[:1]:
            yield from _projected_errors(kind, get_map(source, kind), f"{where}.{kind}", taken)


def _projected_errors(kind: str, source: Json, path: str, taken: set[str]) -> Iterator[FieldError]:
    if kind in ("secret", "configMap"):
        if not source.get("name"):
            yield required(f"{path}.name")
        yield from _item_errors(source, path)
    elif kind == "downwardAPI":
        yield from _pod_file_errors(source, path)
    elif kind == "serviceAccountToken":
        yield from _token_errors(source, path)
    for item in get_maps(source, "items"):
        file = get_str(item, "path")
        if file and file in taken:
            yield invalid(_volume_of(path), file, "conflicting duplicate paths")
        taken.add(file)


def _token_errors(source: Json, path: str) -> Iterator[FieldError]:
    seconds = source.get("expirationSeconds")
    if is_integer(seconds) and seconds < _MIN_TOKEN_SECONDS:
        message = "may not specify a duration less than 10 minutes"
        yield invalid(f"{path}.expirationSeconds", seconds, message)
    if is_integer(seconds) and seconds > _MAX_TOKEN_SECONDS:
        message = "may not specify a duration larger than 2^32 seconds"
        yield invalid(f"{path}.expirationSeconds", seconds, message)
    yield from _file_path_errors(get_str(source, "path"), f"{_volume_of(path)}.path")


def _volume_of(path: str) -> str:
    """Return the path of the volume of a projected source, which some errors of Kubernetes have."""
    return path.partition(".sources[")[0]
