"""What is garbage is found even after it was frozen, and large blocks go back to the system."""

import asyncio
import gc
import platform
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from argosy.engine.gc_tuning import collect_and_freeze, refreeze_periodically


class Knot:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_was_frozen_and_is_garbage_since_is_found_by_looking_thoroughly() -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    collect_and_freeze()
    del knot
    collect_and_freeze()
    assert gone() is not None, "it is out of the collector's sight"
    collect_and_freeze(thoroughly=True)
    assert gone() is None
    assert gc.get_freeze_count() > 0


@pytest.mark.looptime
async def test_once_an_hour_everything_is_looked_through() -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    collect_and_freeze()
    del knot
    keeping = asyncio.create_task(refreeze_periodically())
    await asyncio.sleep(3000)
    assert gone() is not None
    await asyncio.sleep(700)
    assert gone() is None
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


HOLES = """
import sys
from argosy.engine.gc_tuning import limit_heap_growth
if sys.argv[1] == "given back":
    assert limit_heap_growth()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
for size in (1 << 20, 2 << 20, 4 << 20, 8 << 20):
    bytearray(size)
before = resident()
buffers, small = [], []
for _ in range(200):
    buffers.append(bytearray(300 * 1024))
    small.append(bytearray(600))
buffers.clear()
print((resident() - before) >> 20)
"""
"""Buffers of a burst, with small things between them that outlive them: megabytes that stay taken."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_buffers_of_a_burst_leave_no_holes() -> None:
    def stay_taken(how: str) -> int:
        command = [sys.executable, "-c", HOLES, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert stay_taken("kept") > 30, "else there is nothing to mend"
    assert stay_taken("given back") < 5
