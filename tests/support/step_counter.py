"""Counts the lines that a function executes, a measure of its work that is the same on every machine.

Tests use it to check how the cost of a function grows with its input; seconds would depend on the machine.
Work inside of C functions (sorting, joining) counts as one line.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def count_steps(function: Callable[[], object]) -> int:
    """Return how many lines of Python the call executes; each round of a loop counts again."""
    steps = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> "TraceFunction":
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return steps
