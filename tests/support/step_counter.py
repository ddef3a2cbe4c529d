"""Counting the work of a function in lines executed, which is the same on every machine.

How the cost of a function grows with its input can be tested this way, where seconds would depend on the
machine and on what else runs there. Work inside C functions (sorting, joining) counts as the one line that
calls it.
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
