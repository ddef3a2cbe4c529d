"""What a body holds twice is found, however it is written."""

import json

import pytest

from argosy.local.apiserver.body import duplicate_fields

BODIES = {
    "nothing twice": (b'{"a":1,"b":{"a":1}}', []),
    "twice at the top": (b'{"a":1,"a":2}', ["a"]),
    "twice further down, with space before the colon": (b'{"a" : {"b":"x:y", "b" :1}}', ["a.b"]),
    "three times is told once": (b'{"a":1,"a":2,"a":3}', ["a"]),
    "in an item of a list": (b'{"a":[{},{"b":1,"b":2}]}', ["a[1].b"]),
    "a colon in a text counts for nothing": (b'{"a":"\\":b"}', []),
    "an escaped colon hides nothing": (b'{"a":"\\u003a","a":"::"}', ["a"]),
}


@pytest.mark.parametrize(("raw", "want"), BODIES.values(), ids=BODIES.keys())
def test_fields_that_stand_twice_are_found(raw: bytes, want: list[str]) -> None:
    assert duplicate_fields(raw, json.loads(raw)) == want
