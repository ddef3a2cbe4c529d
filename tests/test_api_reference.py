"""The API reference agrees with the CustomResourceDefinitions."""

import pytest

from argosy.kinds.crd_options import CustomResource
from tools.api_reference import FOLDER, KINDS, page, page_path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)
def test_committed_page_equals_the_output_of_the_generator(kind: type[CustomResource]) -> None:
    assert page_path(kind).read_text() == page(kind), "run `python -m tools.api_reference`"


def test_every_page_belongs_to_a_kind() -> None:
    assert set(FOLDER.iterdir()) == {page_path(kind) for kind in KINDS}
