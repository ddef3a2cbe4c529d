"""Tests for reading the name of an image as values of the chart."""

import re

import pytest

from argosy.install.image import image_values

DIGEST = f"sha256:{'0' * 64}"
IMAGES = {
    "repository and tag": ("x/y:z", "x/y", "z", ""),
    "no tag: latest, as container tools read it": ("y", "y", "latest", ""),
    "registry with a port and no tag: the port is no tag": (
        "localhost:5000/a/b",
        "localhost:5000/a/b",
        "latest",
        "",
    ),
    "registry with a port, and a tag": ("localhost:5000/a:1", "localhost:5000/a", "1", ""),
    "digest: no tag": (f"x/y@{DIGEST}", "x/y", "", DIGEST),
    "tag and digest: both": (f"x/y:z@{DIGEST}", "x/y", "z", DIGEST),
}


@pytest.mark.parametrize(("image", "repository", "tag", "digest"), IMAGES.values(), ids=IMAGES.keys())
def test_image_as_values(image: str, repository: str, tag: str, digest: str) -> None:
    assert image_values(image) == {"image": {"repository": repository, "tag": tag, "digest": digest}}


@pytest.mark.parametrize("image", ["", "x y", "x:", "a:b:c", "x@sha256:1", "x;rm"])
def test_other_texts_are_rejected(image: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f'invalid value "{image}": must be REPOSITORY[:TAG]')):
        image_values(image)
