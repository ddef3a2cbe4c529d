from dataclasses import dataclass

import msgspec
import pytest
from msgspec import Struct, field

from argosy.engine.codec import Codec, Undecodable, WatchEvent
from argosy.engine.decode_errors import CUT, MAX_NESTING, locate_error, truncate_nesting
from argosy.engine.errors import ApiError
from argosy.kinds.aresjob import AresJob


class Leaf(Struct):
    size: int = 0
    names: list[str] = field(default_factory=list)


class Tree(Struct):
    leaves: dict[str, Leaf] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    forest: list[dict[str, Leaf]] = field(default_factory=list)


@dataclass
class Case:
    value: object
    want_path: str
    want_problem: str = "Expected `int`, got `str`"


CASES = {
    "wrong type in a map entry: path has the entry's key": Case(
        {"leaves": {"good": {"size": 1}, "bad": {"size": "x"}}}, "leaves.bad.size"
    ),
    "map key with dots: path has the whole key": Case(
        {"labels": {"a.b/c": "1", "d.e/f": 2}}, "labels.d.e/f", "Expected `str`, got `int`"
    ),
    "wrong type in a list item: path has its index": Case(
        {"leaves": {"a": {"names": ["x", 1]}}}, "leaves.a.names[1]", "Expected `str`, got `int`"
    ),
    "wrong type in a map inside a list: path has index and key": Case(
        {"forest": [{}, {"a": {"size": 1}, "b": {"size": "x"}}]}, "forest[1].b.size"
    ),
    "the object is a list: path is empty": Case([1], "", "Expected `object`, got `array`"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_locate_error(case: Case) -> None:
    decoder, raw = msgspec.json.Decoder(Tree), msgspec.json.encode(case.value)
    with pytest.raises(msgspec.ValidationError) as caught:
        decoder.decode(raw)
    assert locate_error(decoder.decode, raw, caught.value) == (case.want_path, case.want_problem)


DEEP = b"[" * 9_000 + b"]" * 9_000
TRUNCATIONS = {
    "empty text: unchanged": (b"", b""),
    "shallow object with brackets in strings: unchanged": (
        b'{"a":[1,{"b":"]}[{"}],"c":"x"}',
        b'{"a":[1,{"b":"]}[{"}],"c":"x"}',
    ),
    "escaped quotes before brackets: unchanged": (rb'{"a":"\\\"[[[","b":"\\"}', rb'{"a":"\\\"[[[","b":"\\"}'),
    "9,000 nested lists: cut at the limit": (
        b'{"a":' + DEEP + b',"b":1}',
        b'{"a":' + b"[" * 199 + CUT + b"]" * 199 + b',"b":1}',
    ),
    "two lists beyond the limit: each is cut": (
        b"[" * MAX_NESTING + b"[1],[2]" + b"]" * MAX_NESTING,
        b"[" * MAX_NESTING + CUT + b"," + CUT + b"]" * MAX_NESTING,
    ),
}


@pytest.mark.parametrize(("text", "want"), TRUNCATIONS.values(), ids=TRUNCATIONS.keys())
def test_truncate_nesting(text: bytes, want: bytes) -> None:
    assert truncate_nesting(text) == want


def body(name: str, spec: bytes = b"{}") -> bytes:
    meta = msgspec.json.encode({"name": name, "namespace": "ns", "uid": f"uid-of-{name}"})
    return b'{"metadata":' + meta + b',"spec":' + spec + b"}"


def test_list_with_a_too_deep_object_still_returns_the_other_objects() -> None:
    items = b",".join((body("good"), body("deep", b'{"x":' + DEEP + b"}"), body("fine")))
    page = Codec(AresJob).page(b'{"metadata":{"resourceVersion":"7"},"items":[' + items + b"]}")
    assert [item.metadata.name for item in page.items] == ["good", "fine"]
    assert page.metadata.resource_version == "7"
    (bad,) = page.undecodable
    assert (bad.metadata.name, bad.path) == ("deep", "spec")
    assert bad.problem == "is nested too deeply: the limit is 200 levels"


@pytest.mark.parametrize(
    "spec", [DEEP, b'{"x":' + DEEP + b"}"], ids=["spec of the wrong type", "spec of the right type"]
)
@pytest.mark.parametrize("event_type", ["ADDED", "DELETED"])
def test_watch_event_with_a_too_deep_object_is_undecodable(event_type: str, spec: bytes) -> None:
    event = Codec(AresJob).event(f'{{"type":"{event_type}","object":'.encode() + body("deep", spec) + b"}")
    assert isinstance(event, Undecodable)
    assert (event.metadata.uid, event.deleted) == ("uid-of-deep", event_type == "DELETED")
    assert isinstance(Codec(AresJob).event(b'{"type":"ADDED","object":' + body("good") + b"}"), WatchEvent)


def test_get_of_a_too_deep_object_raises_an_error_that_says_so() -> None:
    with pytest.raises(ApiError, match="the AresJob is nested too deeply"):
        Codec(AresJob).object(body("deep", b'{"x":' + DEEP + b"}"))
