import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runspecs import Stage, stage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Stage]:
    """A zygote of the test's own."""
    with stage(tmp_path) as running:
        yield running
