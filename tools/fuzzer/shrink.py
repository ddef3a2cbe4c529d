"""Shrinks a disagreement: fewer steps, then smaller bodies, as long as the servers still disagree."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.support.differential import TIMEOUT_SECONDS, Step
from tests.support.field_paths import Json
from tools.fuzzer.report import Disagreement, disagreement_signature
from tools.fuzzer.runner import Answers, Worker

_MAX_TRIES = 60
_MAX_SECONDS = 60.0
_SHORT_TIMEOUT_SECONDS = 2.0
Disagrees = Callable[[Sequence[Step]], bool]


def shrink_disagreement(disagreement: Disagreement, worker: Worker) -> tuple[list[Step], Answers]:
    """The steps that cause the disagreement, and the responses of both servers to them."""
    position = disagreement.signature.partition("|")[0]

    def disagrees(candidate: Sequence[Step]) -> bool:
        """True if the servers disagree about the same field; otherwise too much was removed."""
        answers = worker.ask(candidate)
        return disagreement_signature(candidate, answers.want, answers.got).startswith(position)

    # Without the earlier steps, the condition of a step may never become true.
    worker.set_timeout(seconds=_SHORT_TIMEOUT_SECONDS)
    steps = shrink(disagreement.sequence.steps, disagrees)
    answers = worker.ask(steps)
    worker.set_timeout(seconds=TIMEOUT_SECONDS)
    return steps, answers


def shrink(steps: Sequence[Step], disagrees: Disagrees) -> list[Step]:
    """Remove steps and fields while the servers still disagree, for a limited time."""
    tries, end = iter(range(_MAX_TRIES)), time.monotonic() + _MAX_SECONDS

    def still_disagrees(candidate: Sequence[Step]) -> bool:
        return next(tries, None) is not None and time.monotonic() < end and disagrees(candidate)

    fewer = _with_fewer_steps(list(steps), still_disagrees)
    return _with_smaller_bodies(fewer, still_disagrees)


def _with_fewer_steps(steps: list[Step], still_disagrees: Disagrees) -> list[Step]:
    """Remove halves, quarters and so on down to single steps."""
    size = max(1, len(steps) // 2)
    while True:
        at = len(steps) - size
        while at >= 0:
            without = steps[:at] + steps[at + size :]
            if without and still_disagrees(without):
                steps = without
            at -= size
        if size == 1:
            return steps
        size = max(1, size // 2)


def _with_smaller_bodies(steps: list[Step], still_disagrees: Disagrees) -> list[Step]:
    """Remove fields of bodies."""
    for position in range(len(steps)):
        cut = True
        while cut:
            cut = False
            for body in _without_one_part(steps[position].body):
                candidate = [*steps[:position], replace(steps[position], body=body), *steps[position + 1 :]]
                if still_disagrees(candidate):
                    steps, cut = candidate, True
                    break
    return steps


def _without_one_part(value: Json) -> Iterator[Json]:
    """The variants of a value with one part removed, large parts first."""
    if isinstance(value, dict):
        for name, item in value.items():
            others = {key: other for key, other in value.items() if key != name}
            if name not in ("apiVersion", "kind", "name"):
                yield others
            for smaller in _without_one_part(item):
                yield {**value, name: smaller}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield [*value[:index], *value[index + 1 :]]
            for smaller in _without_one_part(item):
                yield [*value[:index], smaller, *value[index + 1 :]]
