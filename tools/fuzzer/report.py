"""What came of a run: how many sequences, how many disagreed and in how many different ways."""

import json
import re
import time
from collections import Counter
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from tests.support.differential import Step, told_apart
from tests.support.field_paths import Json
from tools.fuzzer.sequences import Sequence


@dataclass(frozen=True)
class Disagreement:
    sequence: Sequence
    want: list[Json]
    got: list[Json]

    @property
    def sign(self) -> str:
        """By what one way of disagreeing is told from another: the first answer that differs, and how."""
        return sign(self.sequence.steps, self.want, self.got)


def sign(steps: Items[Step], want: list[Json], got: list[Json]) -> str:
    """The first answer that differs, where in it, and the beginnings of what stands there."""
    shown = [step for step in steps if step.shown]
    for step, one, other in zip(shown, want, got, strict=False):
        if one != other:
            plural = re.sub(r".*\$ns/|[/?].*", "", step.path.removeprefix("/api/v1/"))
            return f"{step.method} {plural}: {_place(one, other)}"
    return f"{want[-1:]} {got[-1:]}" if want != got else ""


def _place(want: Json, got: Json, path: str = "") -> str:
    if isinstance(want, dict) and isinstance(got, dict):
        for name in sorted({*want, *got}, key=lambda name: (name != "code", name)):
            if want.get(name) != got.get(name):
                return _place(want.get(name), got.get(name), f"{path}.{name}")
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for one, other in zip(want, got, strict=True):
            if one != other:
                return _place(one, other, f"{path}[]")
    return f"{path.removeprefix('.')} | {_brief(want)} / {_brief(got)}"


def _brief(value: Json) -> str:
    return re.sub(r"\d+", "N", json.dumps(value, sort_keys=True))[:70]


@dataclass
class Account:
    sequences: int = 0
    steps: int = 0
    helped: int = 0
    """How many agreed when they were sent again."""
    disagreed: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def note(self, steps: int, disagreement: Disagreement | None, *, helped: bool) -> bool:
        """Count a sequence; whether it disagrees in a way not seen before."""
        self.sequences += 1
        self.steps += steps
        self.helped += helped
        if disagreement is None:
            return False
        self.disagreed[disagreement.sign] += 1
        return self.disagreed[disagreement.sign] == 1

    @property
    def allowance(self) -> int:
        """How many sequences may need to be sent twice."""
        return max(2, self.sequences // 200)

    @property
    def problem(self) -> str:
        """What speaks against this run; empty when nothing does."""
        if self.disagreed:
            return f"{self.disagreed.total()} of {self.sequences} sequences disagree"
        if self.helped > self.allowance:
            few = f"{self.allowance} may"
            return f"{self.helped} of {self.sequences} sequences agree only when sent again; {few}"
        return ""

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        return (
            f"{self.sequences} sequences, {self.steps} steps in {seconds:.0f} s "
            f"({self.sequences / max(seconds, 0.001):.1f}/s): {self.disagreed.total()} disagree "
            f"in {len(self.disagreed)} ways, {self.helped} agree when sent again"
        )


def described(steps: Items[Step], want: list[Json], got: list[Json]) -> str:
    """Steps and answers as a reader needs them to see what is wrong."""
    lines = []
    for step in steps:
        body = (
            ""
            if step.body is None
            else json.dumps(step.body)
            if not isinstance(step.body, str)
            else step.body
        )
        notes = [
            step.type if step.body is not None and step.type != "application/json" else "",
            f"accept {step.accept}" if step.accept != "application/json" else "",
            f"saved as {step.save}" if step.save else "",
        ]
        words = "; ".join(note for note in notes if note)
        lines.append(f"  {step}{f' ({words})' if words else ''} {body}".rstrip())
    shown = [step for step in steps if step.shown]
    if len(shown) == len(want) == len(got):
        lines.append(told_apart(steps, want, got))
    else:
        lines.append(f"kubernetes: {want}\nlocal: {got}")
    return "\n".join(lines)
