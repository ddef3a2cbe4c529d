"""Decides which checkpoints of a job may be deleted."""

from collections.abc import Collection, Sequence

from argosy.checkpoint.manifest import Manifest


def newest_first(manifests: Collection[Manifest]) -> Sequence[Manifest]:
    """Return checkpoints by step, the newest first; of one step, the one created last."""
    return sorted(manifests, key=lambda manifest: (manifest.step, manifest.created), reverse=True)


def select_deletions(
    manifests: Collection[Manifest], keep_last: int, keep: Collection[str] = ()
) -> Sequence[Manifest]:
    """Return what may be deleted: all but the newest `keep_last`, and never what `keep` names.

    `keep` has digests or names (`step-1200-0123456789ab`). A name that fits no checkpoint keeps nothing.
    """
    if keep_last < 1:
        raise ValueError(f"keepLast: invalid value {keep_last}; must be at least 1")
    kept = frozenset(keep)
    older = newest_first(manifests)[keep_last:]
    return [manifest for manifest in older if not kept & {manifest.digest, manifest.name}]
