"""What is asked of a registry about the images of checkpoints, and the answers, as plain data.

`drivers.registry_driver` makes these calls.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

REGISTRY_DRIVER: Final = "registry"
"""The name of the driver."""


class VerifyImages(Struct, frozen=True):
    """Ask whether all images exist with the digests that were recorded."""

    images: Mapping[str, str]
    """Whole names of images, by container."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Recorded digests, by container; those that were not recorded are not compared."""


class FindNewest(Struct, frozen=True):
    """Ask for the newest checkpoint in a repository: the highest stamp that every container has a tag of."""

    repository: str
    containers: tuple[str, ...]
    owner: str
    """`namespace/name`; images of others are left out."""


class DeleteImages(Struct, frozen=True):
    """Ask to delete images; those that are gone are fine."""

    images: tuple[str, ...]


class FoundImages(Struct, frozen=True):
    """Images that exist, by container; empty if nothing was found."""

    images: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    stamp: int = 0
