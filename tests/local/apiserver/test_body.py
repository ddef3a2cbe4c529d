"""Bodies: what stands in them twice is found, and YAML is read without growing beyond all bounds."""

import json

import pytest

from argosy.local.apiserver.body import duplicate_fields, parse_yaml
from argosy.local.apiserver.status import StatusError

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


def laughs(levels: int, again: str = "[{0}]") -> bytes:
    """Anchors of which each names the one before ten times."""
    lines = ["a0: &a0 [lol]"]
    for level in range(1, levels + 1):
        aliases = again.format(", ".join([f"*a{level - 1}"] * 10))
        lines.append(f"a{level}: &a{level} {aliases}")
    return "\n".join(lines).encode()


def merges(levels: int) -> bytes:
    """Mappings of which each merges the one before ten times."""
    lines = ["a0: &a0 {lol: lol}"]
    for level in range(1, levels + 1):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {{<<: [{aliases}]}}")
    return "\n".join(lines).encode()


GROWING = {
    "lists of lists of a billion items": laughs(9),
    "mappings that merge a billion others": merges(9),
    "a list that contains itself": b"a: &a [*a]",
    "a mapping that contains itself": b"a: &a {b: *a}",
    "one large text a hundred times": b"a: &a "
    + b"x" * 100_000
    + b"\nb: ["
    + b", ".join([b"*a"] * 100)
    + b"]",
}


@pytest.mark.parametrize("raw", GROWING.values(), ids=GROWING)
def test_yaml_that_grows_beyond_the_largest_body_is_refused(raw: bytes) -> None:
    with pytest.raises(StatusError, match="excessive aliasing") as refused:
        parse_yaml(raw)
    assert refused.value.code == 400


READ = {
    "aliases are read": (b"a: &a [1]\nb: *a", {"a": [1], "b": [1]}),
    "mappings are merged": (b"a: &a {x: 1}\nb: {<<: *a, y: 2}", {"a": {"x": 1}, "b": {"x": 1, "y": 2}}),
    "an ampersand in a text is no anchor": (b"a: b & c", {"a": "b & c"}),
    "only the first document is read": (b"a: 1\n---\nb: 2", {"a": 1}),
    "nothing is an empty object": (b"", {}),
    "a time is its text": (b"a: 2024-01-01T00:00:00Z", {"a": "2024-01-01T00:00:00Z"}),
}


@pytest.mark.parametrize(("raw", "want"), READ.values(), ids=READ)
def test_yaml_is_read(raw: bytes, want: dict[str, object]) -> None:
    assert parse_yaml(raw) == want
