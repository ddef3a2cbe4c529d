"""Waiting for a condition with a deadline, in place of sleeping and hoping."""

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Until the condition holds; fails when it does not in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"it did not happen within {seconds:g} s")
        await asyncio.sleep(0.005)
