"""Joins the files that several pods saved of one checkpoint into its manifest.

Every pod stores the manifest of its own ranks. Whoever finds the ranks of all pods writes the whole manifest;
two at once write the same bytes, because the result depends on the parts alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from argosy.checkpoint.chunks import ChunkIndex, PartChunks
from argosy.checkpoint.manifest import Manifest


class PodPart(Struct, frozen=True):
    """What one pod has stored."""

    manifest: Manifest
    index: ChunkIndex


@dataclass(frozen=True)
class Merged:
    manifest: Manifest
    index: ChunkIndex


def merge(pods: Collection[PodPart]) -> Merged | None:
    """Return the checkpoint of all pods; None while the files of some ranks are missing.

    Of two pods with the same rank, as after a replacement, the one that saved last counts.
    """
    by_rank: dict[int, PodPart] = {}
    for pod in sorted(pods, key=lambda pod: (pod.manifest.created, pod.manifest.digest)):
        by_rank |= dict.fromkeys(pod.manifest.ranks, pod)
    manifests = [pod.manifest for pod in by_rank.values()]
    first = by_rank[0].manifest if 0 in by_rank else None
    if first is None or len(by_rank) != first.world:
        return None
    by_rank = dict(
        sorted(by_rank.items(), reverse=True)
    )  # A path that two pods have is that of the lower rank.
    parts = {
        part.path: part for rank, pod in by_rank.items() for part in pod.manifest.parts if part.rank == rank
    }
    if not parts:
        return None
    listed = _chunks_by_path(by_rank)
    paths = sorted(parts)
    whole = msgspec.structs.replace(
        first,
        epoch=max(manifest.epoch for manifest in manifests),
        created=max(manifest.created for manifest in manifests),
        seconds=max(manifest.seconds for manifest in manifests),
        parts=tuple(parts[path] for path in paths),
        ranks=(),
    )
    return Merged(whole, ChunkIndex(parts=tuple(listed[path] for path in paths)))


def _chunks_by_path(by_rank: Mapping[int, PodPart]) -> dict[str, PartChunks]:
    return {
        part.path: listed
        for rank, pod in by_rank.items()
        for part, listed in zip(pod.manifest.parts, pod.index.parts, strict=True)
        if part.rank == rank
    }
