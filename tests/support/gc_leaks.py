"""What a piece of work leaves in circles, which only the garbage collector could free.

Frozen objects are out of its sight, and it runs seldom in an operator with many of them: what fails again and
again must not leave circles, above all not of errors and the frames that they came through.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reference_cycles(*types: type) -> Iterator[list[object]]:
    """A list that holds, after the block, the objects of these types that were left in circles in it."""
    left: list[object] = []
    enabled, debug = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield left
        gc.collect()
        left.extend(one for one in gc.garbage if isinstance(one, types))
    finally:
        gc.garbage.clear()
        gc.set_debug(debug)
        if enabled:
            gc.enable()
