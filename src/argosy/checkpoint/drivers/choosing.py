"""Chooses the newest checkpoint that can be used, the same way for every kind of store."""

from collections.abc import Callable

from argosy.checkpoint.manifest import Manifest
from argosy.checkpoint.store import CorruptCheckpointError, Latest, MissingObjectError, Scan, Skipped


def find_newest(scan: Scan, problem_of: Callable[[Manifest], str]) -> Latest:
    """Return the newest checkpoint without a problem, and why newer ones were skipped."""
    skipped = [*scan.skipped]
    for manifest in scan.manifests:
        problem = problem_of(manifest)
        if not problem:
            return Latest(manifest, tuple(skipped))
        skipped.append(Skipped(manifest.name, problem))
    return Latest(None, tuple(skipped))


def problem_in(check: Callable[[], object]) -> str:
    """Return why a checkpoint is unusable, if that is what `check` raises; empty if it raises nothing."""
    try:
        check()
    except (CorruptCheckpointError, MissingObjectError) as error:
        return str(error)
    return ""
