"""Tests for decoding the Record of a kind."""

import gc

import pytest
from msgspec import Struct

from argosy.plan.record import UnsupportedVersionError, decode_record


class Record(Struct, frozen=True):
    version: int = 2
    zone: str = ""


class Unversioned(Struct, frozen=True):
    zone: str = ""


CASES = {
    "no status yet: no Record": (None, None),
    "an empty status.argosy: no Record": ({}, None),
    "a Record of this version: read": ({"version": 2, "zone": "a"}, Record(zone="a")),
    "a Record of an earlier version: read": ({"version": 1, "zone": "a"}, Record(version=1, zone="a")),
    "a field of the wrong type: rebuilt": ({"version": 2, "zone": 7}, None),
    "a version that is no number: rebuilt": ({"version": "new"}, None),
    "not a mapping: no Record": (["a"], None),
}


@pytest.mark.parametrize(("raw", "want"), CASES.values(), ids=CASES.keys())
def test_a_record_is_decoded(raw: object, want: Record | None) -> None:
    assert decode_record(raw, Record) == want


def test_decoding_leaves_no_garbage_in_cycles() -> None:
    """Every reconcile decodes a Record, and a collection of garbage delays all of them."""
    decode_record({"version": 1}, Record)
    gc.collect()
    for _ in range(10):
        decode_record({"version": 1}, Record)
    assert gc.collect() == 0


def test_a_record_of_a_later_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="version 3; version 2 is the newest known"):
        decode_record({"version": 3, "zone": "a"}, Record)


def test_a_record_type_without_a_version_is_refused() -> None:
    with pytest.raises(TypeError, match="Unversioned has no field `version`"):
        decode_record({"version": 1}, Unversioned)
