"""Parses and matches label and field selectors.

A parsed selector is a predicate over a mapping; the empty selector matches everything.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from argosy.local.schema.validation.names import label_value_problems, qualified_name_problems


class SelectorError(ValueError):
    """A selector that cannot be parsed; the text is the message of a 400."""


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
        """Return the value that the field must have, if the selector requires one."""
        return next((t.value for t in self.terms if t.equal and t.field == field), None)

    def matches(self, item: Mapping[str, object]) -> bool:
        return all((field_value(item, t.field.split(".")) == t.value) is t.equal for t in self.terms)


_KEY = r"[^\s,()=!<>]+"
_TERM = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_KEY})|(?P<key>{_KEY})"
    rf"(?:\s*(?P<operator>==|!=|=|<|>)\s*(?P<value>(?:{_KEY})?)|\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)"
)
_TOKEN = re.compile(r"\s*(==|!=|[=!,()<>]|[^\s,()=!<>]*)")


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector such as `app=web,tier in (a, b),!old`."""
    requirements: list[Requirement] = []
    position, is_complete = 0, not text.strip()
    while not is_complete:
        term = _TERM.match(text, position)
        token = _TOKEN.match(text, term.end() if term else position)
        assert token is not None
        if term is None or token[1] not in (",", ""):
            raise SelectorError(f"unable to parse requirement: found '{token[1]}', expected: identifier")
        requirements.append(_requirement(term))
        position, is_complete = token.end(), not token[1]
    return LabelSelector(tuple(requirements))


def selector_from(raw: Mapping[str, object] | None) -> LabelSelector:
    """Return the selector of a `matchLabels`/`matchExpressions` object; None matches everything."""
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
    """Parse a field selector such as `metadata.name=a,status.phase!=Running`; backslash escapes , and =."""
    terms: list[FieldTerm] = []
    for part in sorted(_split_unescaped(text)):
        if not part:
            continue
        match = re.match(r"((?:[^\\=!]|\\.)*?)(!=|==|=)(.*)\Z", part, re.S)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = match.groups()
        if not field and not value and operator != "!=":
            continue  # as in Kubernetes, it matches everything
        terms.append(FieldTerm(field, operator != "!=", re.sub(r"\\([\\,=])", r"\1", value)))
    return FieldSelector(tuple(terms))


def field_value(item: Mapping[str, object], steps: Iterable[str]) -> str:
    """Return the value of a selectable field as text; empty when it is not set."""
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


def _requirement(term: re.Match[str]) -> Requirement:
    key, operator = term["absent"] or term["key"], term["operator"] or term["word"]
    if problems := qualified_name_problems(key):
        raise SelectorError(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
    if operator is None:
        return Requirement(key, "!" if term["absent"] else "exists")
    listed = [term["value"]] if term["word"] is None else term["values"].split(",")
    values = frozenset(value.strip() for value in listed)
    if operator in ("<", ">"):
        if not re.fullmatch(r"-?\d+", term["value"]):
            raise SelectorError(f'values[0]: Invalid value: "{term["value"]}": must be an integer')
        return Requirement(key, "gt" if operator == ">" else "lt", values)
    for value in values:
        if problems := label_value_problems(value):
            raise SelectorError(f'values[0][{key}]: Invalid value: "{value}": {"; ".join(problems)}')
    return Requirement(key, "=" if operator == "==" else operator, values)


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
