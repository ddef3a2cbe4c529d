"""Reads credentials of stores from a file or from a folder, such as a mounted Secret."""

from collections.abc import Mapping
from pathlib import Path

from argosy.checkpoint.store import StoreError

_MAX_BYTES = 1024 * 1024


def read_credentials(path: Path) -> Mapping[str, str]:
    """Return variables by name, from lines `NAME=value` or from a folder with a file for each name."""
    try:
        if path.is_dir():
            files = [entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("..")]
            return {file.name: _read(file) for file in files}
        text = _read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read ({type(error).__name__})") from None
    credentials: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, value = line.strip().removeprefix("export ").partition("=")
        if not separator or not name.strip().isidentifier():
            raise StoreError(f"{path}: line {number}: must be NAME=value")
        credentials[name.strip()] = value.strip().strip("\"'")
    return credentials


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES).decode().strip()
