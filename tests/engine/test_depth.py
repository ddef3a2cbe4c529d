"""Objects nested deeper than can be read: they are told apart, and hide nobody else."""

import msgspec
import pytest

from argosy.engine.codec import Codec, Undecodable, WatchEvent
from argosy.engine.depth import CUT, LEVELS, shallow
from argosy.engine.errors import ApiError
from argosy.kinds.aresjob import AresJob

DEEP = b"[" * 9_000 + b"]" * 9_000
CUTS = {
    "nothing": (b"", b""),
    "what is not too deep": (b'{"a":[1,{"b":"]}[{"}],"c":"x"}', b'{"a":[1,{"b":"]}[{"}],"c":"x"}'),
    "a list": (b'{"a":' + DEEP + b',"b":1}', b'{"a":' + b"[" * 199 + CUT + b"]" * 199 + b',"b":1}'),
    "brackets and quotes in texts": (rb'{"a":"\\\"[[[","b":"\\"}', rb'{"a":"\\\"[[[","b":"\\"}'),
    "several": (b"[" * LEVELS + b"[1],[2]" + b"]" * LEVELS, b"[" * LEVELS + CUT + b"," + CUT + b"]" * LEVELS),
}


@pytest.mark.parametrize(("text", "want"), CUTS.values(), ids=CUTS.keys())
def test_what_is_cut(text: bytes, want: bytes) -> None:
    assert shallow(text) == want


def body(name: str, spec: bytes = b"{}") -> bytes:
    meta = msgspec.json.encode({"name": name, "namespace": "ns", "uid": f"uid-of-{name}"})
    return b'{"metadata":' + meta + b',"spec":' + spec + b"}"


def test_a_deep_object_hides_no_other_of_its_list() -> None:
    items = b",".join((body("good"), body("deep", b'{"x":' + DEEP + b"}"), body("fine")))
    page = Codec(AresJob).page(b'{"metadata":{"resourceVersion":"7"},"items":[' + items + b"]}")
    assert ([one.metadata.name for one in page.items], page.metadata.resource_version) == (
        ["good", "fine"],
        "7",
    )
    (bad,) = page.undecodable
    assert (bad.metadata.name, bad.path) == ("deep", "spec")
    assert bad.problem == "is nested too deeply: there can be 200 levels"


@pytest.mark.parametrize("spec", [DEEP, b'{"x":' + DEEP + b"}"], ids=["of the wrong type too", "alone"])
@pytest.mark.parametrize("kind", ["ADDED", "DELETED"])
def test_a_deep_object_ends_no_watch(kind: str, spec: bytes) -> None:
    event = Codec(AresJob).event(f'{{"type":"{kind}","object":'.encode() + body("deep", spec) + b"}")
    assert isinstance(event, Undecodable)
    assert (event.metadata.uid, event.deleted) == ("uid-of-deep", kind == "DELETED")
    assert isinstance(Codec(AresJob).event(b'{"type":"ADDED","object":' + body("good") + b"}"), WatchEvent)


def test_a_deep_answer_is_an_error_of_its_own() -> None:
    with pytest.raises(ApiError, match="the AresJob is nested too deeply"):
        Codec(AresJob).object(body("deep", b'{"x":' + DEEP + b"}"))
