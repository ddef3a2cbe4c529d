r"""Evaluates the JSONPath of printer columns.

It is the subset that Kubernetes supports: fields (`.a`, `['a']`, `\.` inside a name), indexes and slices,
`*`, and filters with `@` (`[?(@.type=="Ready")]`). A missing key gives no result instead of an error.
"""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

Step: TypeAlias = Callable[[object], Iterator[object]]


class JsonPathError(ValueError):
    """A path that cannot be parsed."""


_FIELD = re.compile(r"\.?((?:[^.\[\]\\ ]|\\.)+)")
_BRACKET = re.compile(r"\[\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|(\*)|(-?\d*(?::-?\d*){0,2}))\s*\]")
_FILTER = re.compile(r"\[\?\(\s*(.+?)\s*\)\]")
_COMPARISON = re.compile(r"(@[^=!<>]*?)\s*(?:(==|!=|<=|>=|<|>)\s*(.+))?\Z")


class JsonPath:
    """A parsed path; `find` returns the values at the path."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = _parse(text)

    def find(self, value: object) -> list[object]:
        nodes = [value]
        for step in self._steps:
            nodes = [result for node in nodes for result in step(node)]
        return nodes


def text_of(value: object) -> str:
    """Return a value as kubectl and printer columns show it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    if isinstance(value, dict | list):
        return msgspec.json.encode(value, order="sorted").decode()
    return str(value)


def _parse(text: str) -> list[Step]:
    steps: list[Step] = []
    position = 1 if text.startswith("$") else 0
    while position < len(text):
        remaining = text[position:]
        if remaining in (".", "@"):
            break
        if match := _FILTER.match(remaining):
            steps.append(_filter(match.group(1)))
        elif match := _BRACKET.match(remaining):
            name = match.group(1) if match.group(1) is not None else match.group(2)
            if name is not None:
                steps.append(_field(name))
            else:
                steps.append(_all if match.group(3) else _slice(match.group(4)))
        elif match := _FIELD.match(remaining):
            name = match.group(1)
            steps.append(_all if name == "*" else _field(re.sub(r"\\(.)", r"\1", name)))
        else:
            raise JsonPathError(f"unrecognized path {text!r} at {remaining!r}")
        position += match.end()
    return steps


def _field(name: str) -> Step:
    def step(node: object) -> Iterator[object]:
        if isinstance(node, dict) and name in node:
            yield node[name]

    return step


def _all(node: object) -> Iterator[object]:
    if isinstance(node, list):
        yield from node
    elif isinstance(node, dict):
        yield from node.values()


def _slice(text: str) -> Step:
    if ":" not in text:
        try:
            index = int(text)
        except ValueError:
            raise JsonPathError(f"invalid array index {text}") from None

        def item(node: object) -> Iterator[object]:
            if isinstance(node, list) and -len(node) <= index < len(node):
                yield node[index]

        return item
    bounds = slice(*(int(part) if part else None for part in text.split(":")))

    def items(node: object) -> Iterator[object]:
        if isinstance(node, list):
            yield from node[bounds]

    return items


def _filter(text: str) -> Step:
    match = _COMPARISON.match(text)
    if match is None:
        raise JsonPathError(f"unrecognized filter {text}")
    path = JsonPath(match.group(1)[1:])
    operator = match.group(2)
    wanted = _literal(match.group(3)) if operator else None

    def step(node: object) -> Iterator[object]:
        for item in node if isinstance(node, list) else []:
            values = path.find(item)
            if values and (operator is None or _compare(values[0], operator, wanted)):
                yield item

    return step


def _literal(text: str) -> object:
    if text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise JsonPathError(f"unrecognized value {text} in a filter") from None


def _compare(left: object, operator: str, right: object) -> bool:
    if operator == "==":
        return left == right
    if operator == "!=":
        return left != right
    if isinstance(left, str) and isinstance(right, str):
        return _is_ordered(left < right, left == right, operator)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return _is_ordered(left < right, left == right, operator)
    return False


def _is_ordered(less: bool, equal: bool, operator: str) -> bool:
    if operator == "<":
        return less
    if operator == "<=":
        return less or equal
    return not less and (operator == ">=" or not equal)
