"""Says why an object could not be decoded, and which field is the reason.

Two things prevent decoding. A value has the wrong type: msgspec names its path, but leaves out the keys of
maps (`$.roles[...].replicas`), so the missing key is found by decoding the object again with one entry of
the map at a time. Or the JSON is nested too deeply: an API server stores ten thousand levels in a field that
it does not validate, while decoders fail at about a thousand, with an error that names no object. Such JSON
is cut at `MAX_NESTING` levels, so that the object's metadata can still be read.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

MAX_NESTING: Final = 200
"""Levels of nesting; no object of a known kind has as many."""
CUT: Final = b'"\\u0000too deep"'
"""Replaces the JSON that was cut; no user writes this string."""
TOO_DEEP: Final = f"nested too deeply: the limit is {MAX_NESTING} levels"

_PATH_PART = re.compile(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]")
_UNNAMED_KEY = "..."
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def locate_error(
    decode: Callable[[bytes], object], raw: bytes, error: msgspec.ValidationError
) -> tuple[str, str]:
    """Return path and problem: `spec.roles.worker.replicas` and "Expected `int`, got `str`"."""
    problem, _, path = str(error).rpartition(" - at `")
    if not problem:
        return "", path
    parts = [name or index for name, index in _PATH_PART.findall(path)]
    return _resolve_path(decode, msgspec.json.decode(raw), parts), problem


def truncate_nesting(text: bytes) -> bytes:
    """Return the same JSON with `CUT` in place of everything deeper than `MAX_NESTING`.

    Only brackets and strings are looked at, so the depth of the input does not matter.
    """
    kept: list[bytes] = []
    start, depth = 0, 0
    for token in _STRING_OR_BRACKET.finditer(text):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == MAX_NESTING + 1:
                    kept.append(text[start : token.start()])
            case b"]" | b"}":
                if depth == MAX_NESTING + 1:
                    kept.append(CUT)
                    start = token.end()
                depth -= 1
    return b"".join([*kept, text[start:]])


def _resolve_path(decode: Callable[[bytes], object], whole: object, parts: Sequence[str]) -> str:
    path, value = "", whole
    for part in parts:
        if isinstance(value, list):
            path += f"[{part}]"
            value = value[int(part)]
            continue
        name = part
        if isinstance(value, dict):
            name = _bad_key(decode, whole, value) if part == _UNNAMED_KEY else part
            value = value.get(name)
        path += f".{name}"
    return path.removeprefix(".")


def _bad_key(decode: Callable[[bytes], object], whole: object, entries: dict[str, object]) -> str:
    """Return the key whose entry alone makes decoding fail, and leave only that entry in the map."""
    all_entries = dict(entries)
    for key, value in all_entries.items():
        entries.clear()
        entries[key] = value
        try:
            decode(msgspec.json.encode(whole))
        except msgspec.ValidationError:
            return key
    entries.update(all_entries)
    return _UNNAMED_KEY
