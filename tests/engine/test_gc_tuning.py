"""Garbage is found even after it was frozen, and large blocks are returned to the system."""

import asyncio
import gc
import platform
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from argosy.engine.gc_tuning import collect_and_freeze, refreeze_periodically


class Cycle:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _restore_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_frozen_cycle_is_freed_only_when_frozen_objects_are_included() -> None:
    cycle = Cycle()
    reference = weakref.ref(cycle)
    collect_and_freeze()
    del cycle
    collect_and_freeze()
    assert reference() is not None, "frozen objects are hidden from the collector"
    collect_and_freeze(include_frozen=True)
    assert reference() is None
    assert gc.get_freeze_count() > 0


@pytest.mark.looptime
async def test_refreeze_includes_frozen_objects_once_an_hour() -> None:
    cycle = Cycle()
    reference = weakref.ref(cycle)
    collect_and_freeze()
    del cycle
    task = asyncio.create_task(refreeze_periodically())
    await asyncio.sleep(3000)
    assert reference() is not None
    await asyncio.sleep(700)
    assert reference() is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


PRINT_HEAP_GROWTH = """
import sys
from argosy.engine.gc_tuning import limit_heap_growth
if sys.argv[1] == "limited":
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
"""Prints how many MiB stay resident after large buffers, with small objects between them, were freed."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_limit_heap_growth_returns_freed_buffers_to_the_system() -> None:
    def heap_growth(setting: str) -> int:
        command = [sys.executable, "-c", PRINT_HEAP_GROWTH, setting]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert heap_growth("default") > 30, "without the setting the heap must grow, or this test proves nothing"
    assert heap_growth("limited") < 5
