from dataclasses import dataclass

import msgspec
import pytest
from msgspec import Struct, field

from argosy.engine.misfit import misfit


class Leaf(Struct):
    size: int = 0
    names: list[str] = field(default_factory=list)


class Whole(Struct):
    leaves: dict[str, Leaf] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    forest: list[dict[str, Leaf]] = field(default_factory=list)


@dataclass
class Case:
    given: object
    want_path: str
    want_problem: str = "Expected `int`, got `str`"


CASES = {
    "an entry of a map is named": Case(
        {"leaves": {"good": {"size": 1}, "bad": {"size": "x"}}}, "leaves.bad.size"
    ),
    "a key may have dots in it": Case(
        {"labels": {"a.b/c": "1", "d.e/f": 2}}, "labels.d.e/f", "Expected `str`, got `int`"
    ),
    "an item of a list is numbered": Case(
        {"leaves": {"a": {"names": ["x", 1]}}}, "leaves.a.names[1]", "Expected `str`, got `int`"
    ),
    "maps in lists": Case({"forest": [{}, {"a": {"size": 1}, "b": {"size": "x"}}]}, "forest[1].b.size"),
    "the whole is something else": Case([1], "", "Expected `object`, got `array`"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_misfit(case: Case) -> None:
    decoder, raw = msgspec.json.Decoder(Whole), msgspec.json.encode(case.given)
    with pytest.raises(msgspec.ValidationError) as caught:
        decoder.decode(raw)
    assert misfit(decoder.decode, raw, caught.value) == (case.want_path, case.want_problem)
