"""One named entry of a kubeconfig (a cluster, a user, a context) and how its fields are read.

Every error names the file, the entry and the field: `~/.kube/config: users[jane].as-groups: must be …`.
"""

import base64
import binascii
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class KubeconfigError(Exception):
    """No usable connection settings: which file, which entry, what is wrong."""


class KubeconfigEntry(Struct, frozen=True):
    value: dict[str, object]
    folder: Path = Path()
    """Where relative file names start."""
    where: str = ""
    """File and entry, as errors name them."""

    def text(self, field: str) -> str:
        """The value of a field, empty if it is absent."""
        value = self.value.get(field)
        return "" if value is None else str(value)

    def typed(self, field: str, kind: type[T], default: T) -> T:
        """The value of a field that must be of a type."""
        value = self.value.get(field)
        if value is None:
            return default
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            self.refuse(field, str(error))

    def file(self, field: str) -> Path | None:
        """The file that a field names, relative to the kubeconfig."""
        name = self.text(field)
        return self.folder / name if name else None

    def data(self, field: str) -> bytes | None:
        """What is given inline as `<field>-data` or in a file as `<field>`; inline wins, as in kubectl."""
        if inline := self.text(f"{field}-data"):
            try:
                return base64.b64decode(inline, validate=True)
            except binascii.Error as error:
                self.refuse(f"{field}-data", f"not base64: {error}")
        path = self.file(field)
        try:
            return path.read_bytes() if path else None
        except OSError as error:
            self.refuse(field, f"cannot read {path}: {error.strerror}")

    def extension(self, name: str) -> dict[str, object] | None:
        """The content of the extension of this name."""
        extensions = self.value.get("extensions")
        for extension in extensions if isinstance(extensions, list) else ():
            if isinstance(extension, dict) and extension.get("name") == name:
                content = extension.get("extension")
                return content if isinstance(content, dict) else None
        return None

    def refuse(self, field: str, problem: str) -> NoReturn:
        raise KubeconfigError(f"{self.where}.{field}: {problem}")
