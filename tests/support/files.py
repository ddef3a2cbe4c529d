"""Looks at folders, for tests that run in an event loop."""

from pathlib import Path


def file_names(folder: Path) -> set[str]:
    """Return the names of everything directly in a folder."""
    return {path.name for path in folder.iterdir()}
