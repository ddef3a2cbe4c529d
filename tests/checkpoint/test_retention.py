"""Which checkpoints may be deleted."""

import hashlib
from collections.abc import Sequence

import pytest

from argosy.checkpoint.manifest import Manifest, Part
from argosy.checkpoint.retention import newest_first, select_deletions


def checkpoint(step: int, created: str = "") -> Manifest:
    sha256 = hashlib.sha256(f"{step}{created}".encode()).hexdigest()
    return Manifest(step=step, world=1, created=created, parts=(Part("a", 0, 1, sha256),))


STEPS = [checkpoint(step) for step in (3, 12, 7, 1)]


@pytest.mark.parametrize(("keep_last", "want"), [(1, [7, 3, 1]), (3, [1]), (4, []), (9, [])])
def test_all_but_the_newest_are_deleted(keep_last: int, want: Sequence[int]) -> None:
    assert [manifest.step for manifest in select_deletions(STEPS, keep_last)] == want


def test_what_is_named_is_never_deleted() -> None:
    keep = (checkpoint(1).digest, checkpoint(7).name, "sha256:of-no-checkpoint")
    assert [manifest.step for manifest in select_deletions(STEPS, 1, keep)] == [3]


def test_keeping_none_is_refused() -> None:
    with pytest.raises(ValueError, match="keepLast: invalid value 0; must be at least 1"):
        select_deletions(STEPS, 0)


def test_of_one_step_the_one_created_last_is_newer() -> None:
    first, second = checkpoint(5, "2026-01-31T12:00:00Z"), checkpoint(5, "2026-01-31T12:00:01Z")
    assert newest_first([first, second]) == [second, first]
