"""Duplicate fields in request bodies are found, and YAML bodies have a limited size after expansion."""

import json

import pytest

from argosy.local.apiserver.body import duplicate_fields, parse_yaml
from argosy.local.apiserver.status import StatusError

BODIES = {
    "no duplicate: empty list": (b'{"a":1,"b":{"a":1}}', []),
    "duplicate at the top level: its name": (b'{"a":1,"a":2}', ["a"]),
    "nested duplicate with a space before the colon: its path": (b'{"a" : {"b":"x:y", "b" :1}}', ["a.b"]),
    "field three times: its name once": (b'{"a":1,"a":2,"a":3}', ["a"]),
    "duplicate in a list item: its path with the index": (b'{"a":[{},{"b":1,"b":2}]}', ["a[1].b"]),
    "colon in a text: no duplicate": (b'{"a":"\\":b"}', []),
    "escaped colon in a text: duplicate is found": (b'{"a":"\\u003a","a":"::"}', ["a"]),
}


@pytest.mark.parametrize(("raw", "want"), BODIES.values(), ids=BODIES.keys())
def test_duplicate_fields_are_found(raw: bytes, want: list[str]) -> None:
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
    "nested lists with a billion items: rejected": laughs(9),
    "nested merges of a billion mappings: rejected": merges(9),
    "list that contains itself: rejected": b"a: &a [*a]",
    "mapping that contains itself: rejected": b"a: &a {b: *a}",
    "large text with a hundred aliases: rejected": b"a: &a "
    + b"x" * 100_000
    + b"\nb: ["
    + b", ".join([b"*a"] * 100)
    + b"]",
}


@pytest.mark.parametrize("raw", GROWING.values(), ids=GROWING)
def test_yaml_with_aliases_beyond_the_size_limit_is_refused(raw: bytes) -> None:
    with pytest.raises(StatusError, match="excessive aliasing") as refused:
        parse_yaml(raw)
    assert refused.value.code == 400


READ = {
    "alias: value of its anchor": (b"a: &a [1]\nb: *a", {"a": [1], "b": [1]}),
    "merge key: merged mapping": (b"a: &a {x: 1}\nb: {<<: *a, y: 2}", {"a": {"x": 1}, "b": {"x": 1, "y": 2}}),
    "ampersand in a text: not an anchor": (b"a: b & c", {"a": "b & c"}),
    "several documents: the first one": (b"a: 1\n---\nb: 2", {"a": 1}),
    "empty body: empty object": (b"", {}),
    "timestamp: its text": (b"a: 2024-01-01T00:00:00Z", {"a": "2024-01-01T00:00:00Z"}),
}


@pytest.mark.parametrize(("raw", "want"), READ.values(), ids=READ)
def test_yaml_is_parsed(raw: bytes, want: dict[str, object]) -> None:
    assert parse_yaml(raw) == want
