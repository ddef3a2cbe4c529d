"""Reads the name of an image, as container tools write it, as values of the chart."""

import re
from typing import Final

from argosy.kinds.meta import Json

_IMAGE: Final = re.compile(
    r"(?P<repository>(?:[\w.-]+(?::\d+)?/)?[\w./-]*\w)(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
DEFAULT_TAG: Final = "latest"
"""The tag that container tools give to an image without one."""


def image_values(image: str) -> Json:
    """Return the chart's values for this image; raise ValueError if it is not the name of one."""
    match = _IMAGE.fullmatch(image)
    if match is None:
        raise ValueError(f'invalid value "{image}": must be REPOSITORY[:TAG][@sha256:DIGEST]')
    digest = match["digest"] or ""
    tag = match["tag"] or ("" if digest else DEFAULT_TAG)
    return {"image": {"repository": match["repository"], "tag": tag, "digest": digest}}
