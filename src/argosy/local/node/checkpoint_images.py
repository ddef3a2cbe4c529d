"""Finds the checkpoints that pods name as their images.

A folder of `argosy up --image NAME=DIR` that holds an unpacked checkpoint is one.
"""

from pathlib import Path
from typing import NamedTuple

from argosy.local.node.checkpoint_files import CheckpointError, read_metadata
from argosy.local.node.pod_types import Pod
from argosy.local.node.settings import Settings


class ImageError(Exception):
    """An image that is a checkpoint cannot be used; the message says why."""


class RestoreSource(NamedTuple):
    folder: Path
    image: str
    """The image that the container ran when it was dumped."""


class CheckpointImages:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def sources(self, pod: Pod) -> dict[str, RestoreSource]:
        """Return the checkpoint of each container whose image is one; raises ImageError."""
        sources = {}
        for container in pod.every_container:
            folder = Path(self._settings.image_root(container.image))
            try:
                metadata = read_metadata(folder)
            except CheckpointError as error:
                raise ImageError(f'image "{container.image}": {error}') from None
            if metadata is not None:
                sources[container.name] = RestoreSource(folder, metadata["image"])
        return sources
