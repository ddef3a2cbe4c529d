"""Label and field selectors: parsing and matching as kube-apiserver does it.

A parsed selector is a plain predicate over a mapping; the empty selector matches everything.
`SelectorError` carries the text that a client gets with a 400.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from argosy.local.schema.validation.names import label_value_problems, qualified_name_problems


class SelectorError(ValueError):
    """A selector that cannot be read."""


class Requirement(Struct, frozen=True):
    """One term of a label selector. `operator` is one of = != in notin exists ! gt lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator in ("=", "in"):
            return value is not None and value in self.values
        if self.operator in ("!=", "notin"):
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        return _compares(value, self.operator, next(iter(self.values)))


class LabelSelector(Struct, frozen=True):
    requirements: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        present = labels or {}
        return all(requirement.matches(present) for requirement in self.requirements)


class FieldTerm(Struct, frozen=True):
    field: str
    equal: bool
    value: str


class FieldSelector(Struct, frozen=True):
    terms: tuple[FieldTerm, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.terms

    def exact(self, field: str) -> str | None:
        """The value that this selector pins a field to, if it does."""
        return next((t.value for t in self.terms if t.equal and t.field == field), None)

    def matches(self, item: Mapping[str, object]) -> bool:
        return all((field_value(item, t.field.split(".")) == t.value) is t.equal for t in self.terms)


_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s,()=!<>]+|\Z)")
_WORDS = {"in", "notin"}


def parse_labels(text: str) -> LabelSelector:
    """Read a label selector such as `app=web,tier in (a, b),!old`."""
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    position = 0
    if not tokens:
        return LabelSelector()
    while True:
        if tokens[position] != "!" and _is_symbol(tokens[position]):
            raise SelectorError(f"found '{tokens[position]}', expected: !, identifier, or 'end of string'")
        try:
            requirement, position = _requirement(tokens, position)
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        requirements.append(requirement)
        if position >= len(tokens):
            return LabelSelector(tuple(sorted(requirements, key=lambda r: r.key)))
        if tokens[position] != ",":
            raise SelectorError(f"found '{tokens[position]}', expected: ',' or 'end of string'")
        position += 1
        following = tokens[position] if position < len(tokens) else ""
        if following != "!" and _is_symbol(following):
            raise SelectorError(f"found '{following}', expected: identifier after ','")


def selector_from(raw: Mapping[str, object] | None) -> LabelSelector:
    """The selector of a `matchLabels`/`matchExpressions` object, or of nothing (which then matches all)."""
    requirements: list[Requirement] = []
    labels = (raw or {}).get("matchLabels")
    if isinstance(labels, Mapping):
        requirements += [Requirement(k, "=", frozenset((str(v),))) for k, v in labels.items()]
    expressions = (raw or {}).get("matchExpressions")
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    for entry in expressions if isinstance(expressions, list) else []:
        operator = str(entry.get("operator"))
        if operator not in operators:
            raise SelectorError(f'"{operator}" is not a valid label selector operator')
        values = frozenset(str(v) for v in entry.get("values") or ())
        requirements.append(Requirement(str(entry.get("key")), operators[operator], values))
    return LabelSelector(tuple(requirements))


def parse_fields(text: str) -> FieldSelector:
    """Read a field selector such as `metadata.name=a,status.phase!=Running`; backslash escapes , and =."""
    terms: list[FieldTerm] = []
    for part in sorted(_split_unescaped(text)):
        if not part:
            continue
        match = re.match(r"((?:[^\\=!]|\\.)*?)(!=|==|=)(.*)\Z", part, re.S)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = match.groups()
        if not field and not value and operator != "!=":
            continue  # Kubernetes takes this for everything
        terms.append(FieldTerm(field, operator != "!=", re.sub(r"\\([\\,=])", r"\1", value)))
    return FieldSelector(tuple(terms))


def field_value(item: Mapping[str, object], steps: Iterable[str]) -> str:
    """The value of a selectable field as text; empty when it is not set."""
    node: object = item
    for step in steps:
        if not isinstance(node, dict):
            return ""
        node = node.get(step)
    if isinstance(node, str):
        return node
    if node is None:
        return ""
    if isinstance(node, bool):
        return "true" if node else "false"
    return str(node)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        assert match is not None
        if not match.group(1):
            return tokens
        tokens.append(match.group(1))
        position = match.end()


def _is_symbol(token: str) -> bool:
    """Whether a token (or the end, which is an empty one) cannot be a name or a value."""
    return token in ("", "=", "==", "!=", "!", ",", "(", ")", "<", ">")


def _requirement(tokens: list[str], position: int) -> tuple[Requirement, int]:
    negated = tokens[position] == "!"
    position += negated
    key = tokens[position] if position < len(tokens) else ""
    if _is_symbol(key):
        raise SelectorError(f"found '{key}', expected: identifier")
    problems = qualified_name_problems(key)
    if problems:
        raise SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
    position += 1
    if negated:
        return Requirement(key, "!"), position
    operator = tokens[position] if position < len(tokens) else ","
    if operator == ",":
        return Requirement(key, "exists"), position
    position += 1
    if operator in ("=", "==", "!="):
        value = tokens[position] if position < len(tokens) and tokens[position] != "," else ""
        if value and _is_symbol(value):
            raise SelectorError(f"found '{value}', expected: identifier")
        position += bool(value)
        return _checked(
            Requirement(key, "=" if operator == "==" else operator, frozenset((value,)))
        ), position
    if operator in _WORDS:
        values, position = _values(tokens, position)
        return _checked(Requirement(key, operator, values)), position
    if operator in ("<", ">"):
        value = tokens[position] if position < len(tokens) else ""
        if not re.fullmatch(r"-?\d+", value):
            raise SelectorError(
                f'values[0]: Invalid value: "{value}": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            )
        return Requirement(key, "gt" if operator == ">" else "lt", frozenset((value,))), position + 1
    raise SelectorError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _values(tokens: list[str], position: int) -> tuple[frozenset[str], int]:
    if position >= len(tokens) or tokens[position] != "(":
        found = tokens[position] if position < len(tokens) else ""
        raise SelectorError(f"found '{found}' expected: '('")
    position += 1
    if position >= len(tokens) or (_is_symbol(tokens[position]) and tokens[position] not in (",", ")")):
        found = tokens[position] if position < len(tokens) else ""
        raise SelectorError(f"found '{found}', expected: ',', ')' or identifier")
    values: set[str] = set()
    expect_value = True
    while position < len(tokens):
        word = tokens[position]
        position += 1
        if word == ")":
            if expect_value:
                values.add("")
            return frozenset(values), position
        if word == ",":
            if expect_value:
                values.add("")
            expect_value = True
        else:
            values.add(word)
            expect_value = False
    end = "',', or identifier" if expect_value else "',' or ')'"
    raise SelectorError(f"found '', expected: {end}")


def _checked(requirement: Requirement) -> Requirement:
    for value in requirement.values:
        problems = label_value_problems(value)
        if problems:
            raise SelectorError(
                f'values[0][{requirement.key}]: Invalid value: "{value}": {"; ".join(problems)}'
            )
    return requirement


def _compares(value: str | None, operator: str, bound: str) -> bool:
    try:
        number = int(value) if value is not None else None
    except ValueError:
        return False
    if number is None:
        return False
    return number > int(bound) if operator == "gt" else number < int(bound)


def _split_unescaped(text: str) -> list[str]:
    return re.findall(r"(?:[^\\,]|\\.)+", text, re.S)
