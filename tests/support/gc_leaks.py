"""Finds objects that code leaves in reference cycles, which only the garbage collector frees.

The operator freezes its long-lived objects and collects rarely, so an operation that fails repeatedly must
not leave cycles, in particular not of exceptions and the frames in their tracebacks.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reference_cycles(*types: type) -> Iterator[list[object]]:
    """A list that after the block holds the objects of these types that the block left in cycles."""
    left: list[object] = []
    enabled, debug = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left
        gc.collect()
        left.extend(item for item in gc.garbage if isinstance(item, types))
    finally:
        gc.garbage.clear()
        gc.set_debug(debug)
        if enabled:
            gc.enable()
