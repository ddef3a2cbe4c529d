"""Renders Go templates: the part of the language that the chart and the Ares settings use.

The chart is thus the only source of what is installed, with Helm and without it. Anything that is not
supported is an error and never ignored. A test compares every object of the chart with what Helm itself
renders.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_ACTION: Final = re.compile(
    r"\{\{(- )?\s*(/\*.*?\*/|(?:\"(?:[^\"\\]|\\.)*\"|[^\"}])*?)\s*( -)?\}\}",
    re.DOTALL,
)
_TOKEN: Final = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+)|(?P<mark>:=|[|(),])'
    r"|(?P<path>\$\w*(?:\.\w+)*|\.(?:\w+(?:\.\w+)*)?)|(?P<word>\w+))"
)

Function = Callable[..., object]


class TemplateError(Exception):
    """A template is invalid, or uses a part of the language that is not supported."""


@dataclass(frozen=True)
class _Path:
    """`.a.b`, `$.a` or `$name.a`; start is None for the dot."""

    start: str | None
    names: tuple[str, ...]


@dataclass(frozen=True)
class _Word:
    name: str


@dataclass(frozen=True)
class _Literal:
    value: object


@dataclass(frozen=True)
class _Pipeline:
    commands: tuple[tuple["_Operand", ...], ...]


_Operand = _Path | _Word | _Literal | _Pipeline


@dataclass(frozen=True)
class _Text:
    text: str


@dataclass(frozen=True)
class _Output:
    value: _Pipeline


@dataclass(frozen=True)
class _Assign:
    name: str
    value: _Pipeline


@dataclass(frozen=True)
class _Block:
    """An `if`, `with` or `range`; `otherwise` is the else branch."""

    word: str
    value: _Pipeline
    names: tuple[str, ...]
    body: "list[_Node]"
    otherwise: "list[_Node]"


_Node = _Text | _Output | _Assign | _Block


@dataclass
class Templates:
    """All templates of a chart, which share their definitions as with Helm."""

    functions: Mapping[str, Function]
    _defined: dict[str, list[_Node]] = field(default_factory=dict)

    def add(self, name: str, source: str) -> None:
        try:
            nodes, rest = self._nodes(list(_pieces(source)), 0, ())
        except TemplateError as error:
            raise TemplateError(f"{name}: {error}") from None
        assert rest is None
        self._defined[name] = nodes

    def render(self, name: str, dot: object) -> str:
        """Render a template, or one that another template defines."""
        if name not in self._defined:
            raise TemplateError(f"unknown template {name}")
        return self._run(self._defined[name], dot, {"": dot})

    def _nodes(
        self, pieces: Sequence[str | list[str]], at: int, until: tuple[str, ...]
    ) -> tuple[list[_Node], int | None]:
        """Return the nodes before one of the words `until`, and the index of that word."""
        nodes: list[_Node] = []
        while at < len(pieces):
            piece = pieces[at]
            if isinstance(piece, str):
                nodes.append(_Text(piece))
            elif piece and piece[0] in until:
                return nodes, at
            elif piece and piece[0] in ("if", "with", "range"):
                block, at = self._block(pieces, at, piece)
                nodes.append(block)
            elif piece and piece[0] == "define":
                body, end = self._nodes(pieces, at + 1, ("end",))
                at = _require_end(end, "define")
                self._defined[_unquote(piece[1])] = body
            elif piece[1:2] == [":="]:
                nodes.append(_Assign(piece[0].removeprefix("$"), _pipeline(piece[2:])))
            elif piece:
                nodes.append(_Output(_pipeline(piece)))
            at += 1
        if until:
            raise TemplateError("missing end of a block")
        return nodes, None

    def _block(self, pieces: Sequence[str | list[str]], at: int, words: Sequence[str]) -> tuple[_Block, int]:
        names: tuple[str, ...] = ()
        value = list(words[1:])
        if ":=" in value:
            cut = value.index(":=")
            names = tuple(word.removeprefix("$") for word in value[:cut] if word != ",")
            value = value[cut + 1 :]
        body, end_index = self._nodes(pieces, at + 1, ("else", "end"))
        end = _require_end(end_index, words[0])
        otherwise: list[_Node] = []
        piece = pieces[end]
        if piece[0] == "else" and len(piece) > 1:
            nested, end = self._block(pieces, end, piece[1:])
            otherwise = [nested]
        elif piece[0] == "else":
            otherwise, end_index = self._nodes(pieces, end + 1, ("end",))
            end = _require_end(end_index, "else")
        return _Block(words[0], _pipeline(value), names, body, otherwise), end

    def _run(self, nodes: Sequence[_Node], dot: object, variables: dict[str, object]) -> str:
        parts: list[str] = []
        for node in nodes:
            match node:
                case _Text():
                    parts.append(node.text)
                case _Output():
                    parts.append(_format(self._value(node.value, dot, variables)))
                case _Assign():
                    variables[node.name] = self._value(node.value, dot, variables)
                case _Block():
                    parts.extend(self._run_block(node, dot, variables))
        return "".join(parts)

    def _run_block(self, block: _Block, dot: object, variables: dict[str, object]) -> Iterator[str]:
        value = self._value(block.value, dot, variables)
        if not value:
            yield self._run(block.otherwise, dot, dict(variables))
        elif block.word == "range":
            pairs = sorted(value.items()) if isinstance(value, Mapping) else enumerate(_items(value))
            for key, item in pairs:
                own = dict(zip(block.names, (key, item) if len(block.names) > 1 else (item,), strict=False))
                yield self._run(block.body, item, {**variables, **own})
        else:
            own = dict.fromkeys(block.names, value)
            yield self._run(block.body, value if block.word == "with" else dot, {**variables, **own})

    def _value(self, pipeline: _Pipeline, dot: object, variables: Mapping[str, object]) -> object:
        piped: tuple[object, ...] = ()
        for first, *rest in pipeline.commands:
            arguments = (*(self._operand(operand, dot, variables) for operand in rest), *piped)
            if isinstance(first, _Word):
                piped = (self._call(first.name, arguments),)
                continue
            value = self._operand(first, dot, variables)
            if callable(value):
                value = value(*arguments)
            elif arguments:
                raise TemplateError(f"{first} is not a function")
            piped = (value,)
        return piped[0]

    def _operand(self, operand: _Operand, dot: object, variables: Mapping[str, object]) -> object:
        match operand:
            case _Literal():
                return operand.value
            case _Pipeline():
                return self._value(operand, dot, variables)
            case _Word():
                return self._call(operand.name, ())
            case _Path():
                value = dot if operand.start is None else variables[operand.start]
                for name in operand.names:
                    value = _member(value, name)
                return value

    def _call(self, name: str, arguments: tuple[object, ...]) -> object:
        if name == "include":
            return self.render(str(arguments[0]), arguments[1])
        if name not in self.functions:
            raise TemplateError(f"unknown function {name}")
        return self.functions[name](*arguments)


def _pieces(source: str) -> Iterator[str | list[str]]:
    """Yield texts, and the tokens of each action; `{{-` and `-}}` trim the adjacent white space."""
    position, trim = 0, False
    for match in _ACTION.finditer(source):
        text = source[position : match.start()]
        text = text.lstrip() if trim else text
        yield text.rstrip() if match[1] else text
        if not match[2].startswith("/*"):
            yield list(_tokens(match[2]))
        position, trim = match.end(), bool(match[3])
    rest = source[position:].lstrip() if trim else source[position:]
    if "{{" in rest:
        raise TemplateError(f"invalid syntax: {rest[rest.index('{{') :][:40]}")
    yield rest


def _tokens(code: str) -> Iterator[str]:
    at = 0
    while at < len(code):
        match = _TOKEN.match(code, at)
        if match is None:
            raise TemplateError(f"invalid syntax: {code}")
        yield match[0].strip()
        at = match.end()


def _pipeline(words: Sequence[str]) -> _Pipeline:
    pipeline, rest = _parse_pipeline(list(words))
    if rest:
        raise TemplateError(f"invalid syntax: {' '.join(words)}")
    return pipeline


def _parse_pipeline(words: list[str]) -> tuple[_Pipeline, list[str]]:
    commands: list[list[_Operand]] = [[]]
    while words and words[0] != ")":
        word, words = words[0], words[1:]
        if word == "|":
            commands.append([])
        elif word == "(":
            inner, words = _parse_pipeline(words)
            if words[:1] != [")"]:
                raise TemplateError("missing closing parenthesis")
            words = words[1:]
            commands[-1].append(inner)
        else:
            commands[-1].append(_parse_operand(word))
    if not all(commands):
        raise TemplateError("missing command in a pipeline")
    return _Pipeline(tuple(map(tuple, commands))), words


def _parse_operand(word: str) -> _Operand:
    if word.startswith('"'):
        return _Literal(_unquote(word))
    if word.lstrip("-").isdigit():
        return _Literal(int(word))
    if word in ("true", "false"):
        return _Literal(word == "true")
    if word.startswith(("$", ".")):
        start, *names = word.split(".")
        return _Path(start.removeprefix("$") if start else None, tuple(name for name in names if name))
    return _Word(word)


def _member(value: object, name: str) -> object:
    if isinstance(value, Mapping):
        return value.get(name)
    if value is None:
        raise TemplateError(f"cannot read field {name} of nil")
    return getattr(value, name)


def _format(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _items(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise TemplateError(f"range cannot iterate over {value!r}")
    return value


def _require_end(index: int | None, word: str) -> int:
    if index is None:
        raise TemplateError(f"missing end of {word}")
    return index


def _unquote(word: str) -> str:
    return word[1:-1].encode().decode("unicode_escape")
