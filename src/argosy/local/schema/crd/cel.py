"""Evaluates `x-kubernetes-validations`: the CEL rules of custom resources.

Rules are compiled once per schema node. The CEL library has the standard functions of the language but not
those of Kubernetes (`isURL`, `quantity`, optional types …): `rule_errors` rejects a definition that uses one
of them, with its path, so that no rule is ignored.
"""

import importlib.util
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from msgspec import Struct

from argosy.local.schema.errors import (
    NO_PATH,
    OMITTED,
    ErrorType,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from argosy.local.schema.model import Json, Rule, Schema

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_STANDARD = frozenset(
    (
        *("size", "string", "int", "uint", "double", "bool", "bytes", "duration", "timestamp", "type", "dyn"),
        *("contains", "startsWith", "endsWith", "matches", "in", "has"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    )
)
# Prefixes of functions of Kubernetes' libraries, such as sets.contains.
_LIBRARIES = frozenset(("sets", "math", "base64", "strings", "optional", "lists", "format", "regex"))
_OPERATORS = re.compile(r"[@_!\-]")
_RESERVED = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_OBJECT_FIELDS = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "generateName"))
"""What rules of a whole object may read although no schema declares it."""
_CHAIN = re.compile(r"(?<![\w.\"'])(?:self|oldSelf)((?:\.[A-Za-z_]\w*)+)(\()?")
_STRINGS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_MISSING = object()


class Program(Protocol):
    def execute(self, context: Mapping[str, object]) -> object: ...
    def functions(self) -> list[str]: ...
    def variables(self) -> list[str]: ...


class CompiledRule(Struct, frozen=True):
    rule: Rule
    program: Program
    message: Program | None
    transition: bool


def has_rules(schema: Schema) -> bool:
    """Return True if a schema has rules anywhere."""
    cached = schema.compiled.get("has_rules")
    if cached is None:
        cached = schema.compiled["has_rules"] = bool(schema.rules) or any(
            has_rules(child) for child in _below(schema)
        )
    return cached is True


def run_rules(obj: Json, schema: Schema, old: Json | None = None) -> list[FieldError]:
    """Return the errors of all rules that are violated; transition rules need an old object."""
    return list(_run(obj, schema, "", old if old is not None else _MISSING))


def rule_errors(schema: Schema, path: str) -> list[FieldError]:
    """Return the errors of the rules of a definition; `schema` is that of the whole object."""
    return list(_rule_errors(schema, path, root=True))


def _run(value: object, schema: Schema, path: str, old: object) -> Iterator[FieldError]:
    if schema.rules and value is not None:
        yield from _run_here(value, schema, path, old)
    if isinstance(value, dict):
        before: Mapping[str, object] = old if isinstance(old, dict) else {}
        for key, item in value.items():
            child = schema.properties.get(key) or schema.additional
            if child is not None and has_rules(child):
                yield from _run(item, child, below(path, key, schema), before.get(key, _MISSING))
    elif isinstance(value, list) and schema.items is not None and has_rules(schema.items):
        previous = items_by_key(old, schema)
        for index, item in enumerate(value):
            yield from _run(
                item, schema.items, f"{path}[{index}]", previous.get(item_key(item, schema), _MISSING)
            )


def below(path: str, key: str, schema: Schema) -> str:
    """Return the path of a value: the name of a field follows a dot, the key of a map is in brackets."""
    if key not in schema.properties:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _run_here(value: object, schema: Schema, path: str, old: object) -> Iterator[FieldError]:
    unchanged = old is not _MISSING and old == value
    context = {"self": _visible(value, schema)}
    if old is not _MISSING:
        context["oldSelf"] = _visible(old, schema)
    for compiled in _compiled_rules(schema):
        if compiled.transition if old is _MISSING else unchanged and not compiled.transition:
            continue
        try:
            result = compiled.program.execute(context)
        except (KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError) as error:
            detail = f"{_problem(error)} evaluating rule: {compiled.rule.message or compiled.rule.rule}"
            yield invalid(path or NO_PATH, _reported_value(value), detail)
            continue
        if result is not True:
            yield _failure(value, path, compiled, context)


def _failure(value: object, path: str, compiled: CompiledRule, context: Mapping[str, object]) -> FieldError:
    rule = compiled.rule
    where = f"{path}{rule.field_path}".removeprefix(".") or NO_PATH
    detail = _expressed(compiled, context) or rule.message.strip() or f"failed rule: {rule.rule.strip()}"
    match rule.reason:
        case ErrorType.FORBIDDEN:
            return forbidden(where, detail)
        case ErrorType.REQUIRED:
            return required(where, detail)
        case ErrorType.DUPLICATE:
            return duplicate(where, _reported_value(value))
    return invalid(where, _reported_value(value), detail)


def _expressed(compiled: CompiledRule, context: Mapping[str, object]) -> str:
    if compiled.message is None:
        return ""
    try:
        text = compiled.message.execute(context)
    except (KeyError, RuntimeError, TypeError, ValueError, ZeroDivisionError):
        return ""
    return text.strip() if isinstance(text, str) and "\n" not in text else ""


def _reported_value(value: object) -> object:
    return OMITTED if isinstance(value, dict | list) else value


def _problem(error: Exception) -> str:
    return f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error).split(".", 1)[0]


def _compiled_rules(schema: Schema) -> list[CompiledRule]:
    rules = schema.compiled.get("rules")
    if rules is None:
        rules = schema.compiled["rules"] = [_compile(rule) for rule in schema.rules]
    return cast("list[CompiledRule]", rules)


def _compile(rule: Rule) -> CompiledRule:
    program = compile_expression(rule.rule)
    message = compile_expression(rule.message_expression) if rule.message_expression else None
    return CompiledRule(rule, program, message, transition="oldSelf" in program.variables())


class CelError(ValueError):
    """An expression that cannot be compiled; the text is the reason."""


def compile_expression(text: str) -> Program:
    """Compile an expression; raises CelError."""
    try:
        program = cast("Program", _library().compile(text))
    except ValueError as error:
        _, _, reason = str(error).partition(": ")
        raise CelError("compilation failed: " + reason.replace("\n| ", "\n | ")) from None
    missing = [f for f in program.functions() if f not in _STANDARD and not _OPERATORS.match(f)]
    missing += sorted(_LIBRARIES.intersection(program.variables()))
    if missing:
        names = ", ".join(repr(name) for name in missing)
        raise CelError(f"compilation failed: undeclared reference to {names}: not supported by this server")
    return program


@cache
def _library() -> ModuleType:
    """Return the CEL extension module, without the command line that its package imports."""
    loaded = sys.modules.get("cel.cel")
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec("cel")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0])
    binary = next(path for path in folder.iterdir() if path.name.startswith("cel.") and path.suffix == ".so")
    spec = importlib.util.spec_from_file_location("cel.cel", binary)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cel.cel"] = module
    spec.loader.exec_module(module)
    return module


def _rule_errors(schema: Schema, path: str, *, root: bool = False) -> Iterator[FieldError]:
    for index, rule in enumerate(schema.rules):
        where = f"{path}.x-kubernetes-validations[{index}]"
        yield from _text_errors(rule, where)
        try:
            program = compile_expression(rule.rule) if rule.rule.strip() else None
        except CelError as error:
            yield invalid(f"{where}.rule", rule.rule, str(error))
        else:
            if unknown := _unknown_field(rule, schema, _OBJECT_FIELDS if root else ()):
                yield invalid(f"{where}.rule", rule.rule, f"compilation failed: undefined field '{unknown}'")
            elif program and not program.variables() and not isinstance(program.execute({}), bool):
                yield invalid(f"{where}.rule", rule.rule, "cel expression must evaluate to a bool")
        try:
            compile_expression(rule.message_expression or "''")
        except CelError as error:
            yield invalid(f"{where}.messageExpression", rule.message_expression, str(error))
    for name, child in schema.properties.items():
        yield from _rule_errors(child, f"{path}.properties[{name}]")
    if schema.items is not None:
        yield from _rule_errors(schema.items, f"{path}.items")
    if schema.additional is not None:
        yield from _rule_errors(schema.additional, f"{path}.additionalProperties")


def _text_errors(rule: Rule, where: str) -> Iterator[FieldError]:
    if not rule.rule.strip():
        yield required(f"{where}.rule", "rule is not specified")
    if (rule.message and not rule.message.strip()) or "\n" in rule.message:
        yield invalid(f"{where}.message", rule.message, "must be one line that is not blank")
    if "\n" in rule.rule.strip() and not rule.message:
        yield required(f"{where}.message", "message must be specified if rule contains line breaks")
    if rule.reason and rule.reason not in REASONS:
        yield not_supported(f"{where}.reason", rule.reason, REASONS)
    if rule.optional_old_self is not None:
        yield forbidden(f"{where}.optionalOldSelf", "not supported by this server")


def _unknown_field(rule: Rule, schema: Schema, also: Collection[tuple[str, ...]]) -> str:
    """Return the first field that a rule reads through `self` and that is neither in the schema nor in
    `also`."""
    blanked = _STRINGS.sub("''", rule.rule)
    for match in _CHAIN.finditer(blanked):
        steps = match.group(1).split(".")[1:]
        if match.group(2):
            steps.pop()  # a method call
        if tuple(steps) in also:
            continue
        node = schema
        for step in steps:
            if not _is_closed(node):
                break
            names = {escape(name): name for name in node.properties}
            if step not in names:
                return step
            node = node.properties[names[step]]
    return ""


def _is_closed(schema: Schema) -> bool:
    """Return True if a value has only the fields that its schema declares; scalars have none."""
    if schema.type in ("integer", "number", "boolean", "string"):
        return not schema.format  # some formats are objects to CEL
    free = schema.preserve_unknown or schema.embedded_resource or schema.additional is not None
    return schema.type == "object" and not free


def escape(name: str) -> str:
    """Return the name of a field in CEL."""
    if name in _RESERVED:
        return f"__{name}__"
    for text, word in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(text, word)
    return name


def _visible(value: object, schema: Schema) -> object:
    """Return a value as rules use it: with escaped names, typed times and durations."""
    if not _converts(schema):
        return value
    if isinstance(value, dict):
        fields = schema.properties
        return {
            (escape(key) if key in fields else key): _visible(item, child) if child is not None else item
            for key, item in value.items()
            for child in (fields.get(key) or schema.additional,)
        }
    if isinstance(value, list) and schema.items is not None:
        return [_visible(item, schema.items) for item in value]
    if isinstance(value, str) and schema.format == "date-time":
        return datetime.fromisoformat(value)
    if isinstance(value, str) and schema.format == "duration":
        return _duration(value)
    return value


def _converts(schema: Schema) -> bool:
    cached = schema.compiled.get("converts")
    if cached is None:
        schema.compiled["converts"] = False
        cached = schema.compiled["converts"] = (
            schema.format in ("date-time", "duration")
            or any(escape(name) != name for name in schema.properties)
            or any(_converts(child) for child in _below(schema))
        )
    return cached is True


def _duration(text: str) -> timedelta:
    units = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
    parts = re.findall(r"(\d+\.?\d*|\.\d+)\s*(ns|us|µs|ms|s|m|h)", text)
    seconds = sum(float(number) * units[unit] for number, unit in parts)
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)


def _below(schema: Schema) -> Iterator[Schema]:
    yield from schema.properties.values()
    if schema.items is not None:
        yield schema.items
    if schema.additional is not None:
        yield schema.additional


def items_by_key(items: object, schema: Schema) -> dict[object, object]:
    """Return the items of a list of type map by their keys, to find those of the old object."""
    if schema.list_type != "map" or not isinstance(items, list):
        return {}
    return {item_key(item, schema): item for item in items}


def item_key(item: object, schema: Schema) -> object:
    if schema.list_type != "map" or not isinstance(item, dict):
        return _MISSING
    return tuple(repr(item.get(key)) for key in schema.list_map_keys)
