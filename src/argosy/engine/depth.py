"""JSON that is nested deeper than it can be read here, cut down to what can.

An API server stores ten thousand levels in a field that it does not look into; decoders give up after about a
thousand, with an error that names neither the object nor the place. So whatever is too deep is put aside by
looking at brackets alone, and who it belongs to can be told.
"""

import re
from typing import Final

LEVELS: Final = 200
"""More than any object has whose kind is known."""
CUT: Final = b'"\\u0000too deep"'
"""Stands where something was cut away; no text that people write."""
TOO_DEEP: Final = f"nested too deeply: there can be {LEVELS} levels"

_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def shallow(text: bytes) -> bytes:
    """The same JSON with `CUT` in place of all that is deeper than `LEVELS`."""
    kept: list[bytes] = []
    begin, depth = 0, 0
    for token in _TOKENS.finditer(text):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == LEVELS + 1:
                    kept.append(text[begin : token.start()])
            case b"]" | b"}":
                if depth == LEVELS + 1:
                    kept.append(CUT)
                    begin = token.end()
                depth -= 1
    return b"".join([*kept, text[begin:]])
