"""Validates the names of the sysctls of a pod; the node decides which of them are allowed."""

import re
from collections.abc import Iterator

from argosy.local.schema.errors import FieldError, duplicate, invalid, required
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_maps, get_str

MAX_NAME_CHARS = 253
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
NAME = f"({_SEGMENT}[\\./])*{_SEGMENT}"
_name = re.compile(NAME).fullmatch
_SHARED = {"hostNetwork": ("net.",), "hostIPC": ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")}
"""Sysctls of the namespaces that a pod shares with its node by these fields."""


def sysctl_errors(spec: Json, path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, sysctl in enumerate(get_maps(spec, "securityContext", "sysctls")):
        where, name = f"{path}[{index}].name", get_str(sysctl, "name")
        dotted = with_dots(name)
        if not name:
            yield required(where)
        elif len(name) > MAX_NAME_CHARS or not _name(name):
            message = f"must have at most {MAX_NAME_CHARS} characters and match regex {NAME}"
            yield invalid(where, name, message)
        elif name in names:
            yield duplicate(where, name)
        names.add(name)
        for field, prefixes in _SHARED.items():
            if spec.get(field) is True and dotted.startswith(prefixes):
                yield invalid(where, name, f"may not be specified when '{field}' is true")


def with_dots(name: str) -> str:
    """Return a name with dots as separators; if its first separator is a slash, its slashes become dots."""
    first = next((character for character in name if character in "./"), ".")
    return name.translate(str.maketrans("/.", "./")) if first == "/" else name
