"""Reads the fields of a kubeconfig entry: a cluster, a user or a context.

Errors have the form `~/.kube/config: users[jane].as-groups: must be …`: file, entry, field, problem.
"""

import base64
import binascii
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class KubeconfigError(Exception):
    """A kubeconfig is missing or invalid; the message names file, entry and field."""


class KubeconfigEntry(Struct, frozen=True):
    value: dict[str, object]
    folder: Path = Path()
    """The folder to which relative paths refer."""
    location: str = ""
    """File and entry, for error messages."""

    def text(self, field: str) -> str:
        """Return the value of a field; empty if it is absent."""
        value = self.value.get(field)
        return "" if value is None else str(value)

    def typed(self, field: str, kind: type[T], default: T) -> T:
        """Return the value of a field, converted to a type."""
        value = self.value.get(field)
        if value is None:
            return default
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            self.reject(field, str(error))

    def file(self, field: str) -> Path | None:
        """Return the path in a field, relative to the kubeconfig."""
        name = self.text(field)
        return self.folder / name if name else None

    def data(self, field: str) -> bytes | None:
        """Return the data in `<field>-data`, or else in the file named by `<field>`, as kubectl does."""
        if inline := self.text(f"{field}-data"):
            try:
                return base64.b64decode(inline, validate=True)
            except binascii.Error as error:
                self.reject(f"{field}-data", f"invalid base64: {error}")
        path = self.file(field)
        try:
            return path.read_bytes() if path else None
        except OSError as error:
            self.reject(field, f"cannot read {path}: {error.strerror}")

    def extension(self, name: str) -> dict[str, object] | None:
        """Return the content of an extension."""
        extensions = self.value.get("extensions")
        for extension in extensions if isinstance(extensions, list) else ():
            if isinstance(extension, dict) and extension.get("name") == name:
                content = extension.get("extension")
                return content if isinstance(content, dict) else None
        return None

    def reject(self, field: str, problem: str) -> NoReturn:
        """Raise a `KubeconfigError` about a field."""
        raise KubeconfigError(f"{self.location}.{field}: {problem}")
