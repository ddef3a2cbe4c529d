"""Where an object does not fit its type, in words for the person who wrote it.

A decoder leaves the keys of maps out of its paths (`$.roles[...].replicas`): they are found by decoding the
object again with one entry of the map at a time. That costs, and happens once for each bad object.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

_SEGMENT = re.compile(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]")
_UNNAMED = "..."


def misfit(decode: Callable[[bytes], object], raw: bytes, error: msgspec.ValidationError) -> tuple[str, str]:
    """Path and problem: `spec.roles.worker.replicas` and "Expected `int`, got `str`"."""
    what, _, where = str(error).rpartition(" - at `")
    if not what:
        return "", where
    segments = [name or index for name, index in _SEGMENT.findall(where)]
    return _path(decode, msgspec.json.decode(raw), segments), what


def _path(decode: Callable[[bytes], object], whole: object, segments: Sequence[str]) -> str:
    path, here = "", whole
    for segment in segments:
        if isinstance(here, list):
            path += f"[{segment}]"
            here = here[int(segment)]
            continue
        name = segment
        if isinstance(here, dict):
            name = _culprit(decode, whole, here) if segment == _UNNAMED else segment
            here = here.get(name)
        path += f".{name}"
    return path.removeprefix(".")


def _culprit(decode: Callable[[bytes], object], whole: object, entries: dict[str, object]) -> str:
    """The key whose entry alone is enough to make the whole not fit; the others are then out of the way."""
    every = dict(entries)
    for key, value in every.items():
        entries.clear()
        entries[key] = value
        try:
            decode(msgspec.json.encode(whole))
        except msgspec.ValidationError:
            return key
    entries.update(every)
    return _UNNAMED
