"""Summarizes a run: the number of sequences, of disagreements, and of different kinds of disagreement."""

import json
import re
import time
from collections import Counter
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from tests.support.differential import Step, transcript_diff
from tests.support.field_paths import Json
from tools.fuzzer.sequences import Sequence


@dataclass(frozen=True)
class Disagreement:
    sequence: Sequence
    want: list[Json]
    got: list[Json]

    @property
    def signature(self) -> str:
        """Identifies a kind of disagreement: the first response that differs, and how."""
        return disagreement_signature(self.sequence.steps, self.want, self.got)


def disagreement_signature(steps: Items[Step], want: list[Json], got: list[Json]) -> str:
    """The first response that differs, the field in it, and the start of both values."""
    shown = [step for step in steps if step.shown]
    for step, expected, actual in zip(shown, want, got, strict=False):
        if expected != actual:
            plural = re.sub(r".*\$ns/|[/?].*", "", step.path.removeprefix("/api/v1/"))
            return f"{step.method} {plural}: {_first_difference(expected, actual)}"
    return f"{want[-1:]} {got[-1:]}" if want != got else ""


def _first_difference(want: Json, got: Json, path: str = "") -> str:
    if isinstance(want, dict) and isinstance(got, dict):
        for name in sorted({*want, *got}, key=lambda name: (name != "code", name)):
            if want.get(name) != got.get(name):
                return _first_difference(want.get(name), got.get(name), f"{path}.{name}")
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for expected, actual in zip(want, got, strict=True):
            if expected != actual:
                return _first_difference(expected, actual, f"{path}[]")
    return f"{path.removeprefix('.')} | {_brief(want)} / {_brief(got)}"


def _brief(value: Json) -> str:
    return re.sub(r"\d+", "N", json.dumps(value, sort_keys=True))[:70]


@dataclass
class Summary:
    sequences: int = 0
    steps: int = 0
    agreed_on_retry: int = 0
    """The number of sequences that agreed when they were sent again."""
    disagreed: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def add(self, steps: int, disagreement: Disagreement | None, *, agreed_on_retry: bool) -> bool:
        """Count a sequence; returns True if its kind of disagreement is new."""
        self.sequences += 1
        self.steps += steps
        self.agreed_on_retry += agreed_on_retry
        if disagreement is None:
            return False
        self.disagreed[disagreement.signature] += 1
        return self.disagreed[disagreement.signature] == 1

    @property
    def allowed_retries(self) -> int:
        """The number of sequences that may need to be sent twice."""
        return max(2, self.sequences // 200)

    @property
    def problem(self) -> str:
        """Why the run failed; empty if it passed."""
        if self.disagreed:
            return f"{self.disagreed.total()} of {self.sequences} sequences disagree"
        if self.agreed_on_retry > self.allowed_retries:
            few = f"{self.allowed_retries} may"
            return f"{self.agreed_on_retry} of {self.sequences} sequences agree only when sent again; {few}"
        return ""

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        return (
            f"{self.sequences} sequences, {self.steps} steps in {seconds:.0f} s "
            f"({self.sequences / max(seconds, 0.001):.1f}/s): {self.disagreed.total()} disagree "
            f"in {len(self.disagreed)} ways, {self.agreed_on_retry} agree when sent again"
        )


def describe(steps: Items[Step], want: list[Json], got: list[Json]) -> str:
    """The steps and a diff of the responses, for a reader."""
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
        words = "; ".join(add for add in notes if add)
        lines.append(f"  {step}{f' ({words})' if words else ''} {body}".rstrip())
    shown = [step for step in steps if step.shown]
    if len(shown) == len(want) == len(got):
        lines.append(transcript_diff(steps, want, got))
    else:
        lines.append(f"kubernetes: {want}\nlocal: {got}")
    return "\n".join(lines)
