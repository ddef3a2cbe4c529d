"""Cuts a disagreement down: fewer steps, then smaller bodies, as long as the servers still disagree."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.support.differential import PATIENCE, Step
from tests.support.field_paths import Json
from tools.fuzzer.report import Disagreement, sign
from tools.fuzzer.runner import Answers, Lane

_TRIES = 60
_SECONDS = 60.0
_SHORT_PATIENCE = 2.0
Disagrees = Callable[[Sequence[Step]], bool]


def cut_down(disagreement: Disagreement, lane: Lane) -> tuple[list[Step], Answers]:
    """The steps that matter, and what both servers answer to them."""
    place = disagreement.sign.partition("|")[0]

    def disagrees(candidate: Sequence[Step]) -> bool:
        """In the same place, that is: a sequence cut down too far disagrees about something else."""
        answers = lane.ask(candidate)
        return sign(candidate, answers.want, answers.got).startswith(place)

    # Without the steps before it, what a step waits for may never come.
    lane.hurry(patience=_SHORT_PATIENCE)
    steps = shrink(disagreement.sequence.steps, disagrees)
    answers = lane.ask(steps)
    lane.hurry(patience=PATIENCE)
    return steps, answers


def shrink(steps: Sequence[Step], disagrees: Disagrees) -> list[Step]:
    """The fewest and smallest steps that can be found in reasonable time."""
    tries, end = iter(range(_TRIES)), time.monotonic() + _SECONDS

    def still(candidate: Sequence[Step]) -> bool:
        return next(tries, None) is not None and time.monotonic() < end and disagrees(candidate)

    found = _fewer(list(steps), still)
    return _smaller(found, still)


def _fewer(steps: list[Step], still: Disagrees) -> list[Step]:
    """Without the steps after the first difference, then without halves, quarters, single steps."""
    size = max(1, len(steps) // 2)
    while True:
        at = len(steps) - size
        while at >= 0:
            without = steps[:at] + steps[at + size :]
            if without and still(without):
                steps = without
            at -= size
        if size == 1:
            return steps
        size = max(1, size // 2)


def _smaller(steps: list[Step], still: Disagrees) -> list[Step]:
    """Without fields of bodies that do not matter."""
    for place in range(len(steps)):
        cut = True
        while cut:
            cut = False
            for body in _without_one(steps[place].body):
                candidate = [*steps[:place], replace(steps[place], body=body), *steps[place + 1 :]]
                if still(candidate):
                    steps, cut = candidate, True
                    break
    return steps


def _without_one(value: Json) -> Iterator[Json]:
    """The value without one of its parts, large parts first."""
    if isinstance(value, dict):
        for name, item in value.items():
            rest = {key: other for key, other in value.items() if key != name}
            if name not in ("apiVersion", "kind", "name"):
                yield rest
            for smaller in _without_one(item):
                yield {**value, name: smaller}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield [*value[:index], *value[index + 1 :]]
            for smaller in _without_one(item):
                yield [*value[:index], smaller, *value[index + 1 :]]
