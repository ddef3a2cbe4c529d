"""Validates the options of a framework: reports every invalid one with its path and the allowed values.

The allowed values are read from the adapter's `Options`, so that messages always agree with the validation,
also for adapters of other packages.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec
from msgspec import Struct, inspect

from argosy.kinds.text import closest, join_names, quote_value
from argosy.workload.model import Json, Problem


def option_problems(framework: str, options: Json, kind: type[Struct], path: str) -> list[Problem]:
    """Return a problem for every invalid option; empty if `options_of` can read them."""
    problems = list(_struct_problems(f"framework {framework}", options, kind, path))
    if not problems:
        try:
            msgspec.convert(dict(options), kind)
        except msgspec.ValidationError as error:  # from the adapter's own check of several options
            problems.append(Problem(path, str(error)))
    return problems


def _struct_problems(owner: str, written: Json, kind: type[Struct], path: str) -> Iterator[Problem]:
    fields = _fields(kind)
    for name, value in written.items():
        if name not in fields:
            yield Problem(f"{path}.{name}", _unknown(owner, name, list(fields)))
        else:
            yield from _value_problems(f"{path}.{name}", value, fields[name].type)
    for name, option in fields.items():
        if option.required and name not in written:
            yield Problem(f"{path}.{name}", f"required: must be {describe_type(option.type)}")


@cache
def _fields(kind: type[Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return the fields by name; cached, because inspecting a type is slow and produces garbage."""
    return {option.encode_name: option for option in msgspec.structs.fields(kind)}


def _value_problems(path: str, value: object, kind: object) -> Iterator[Problem]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        inner = _struct_of(kind)
        problems = (
            list(_struct_problems("this", value, inner, path)) if inner and isinstance(value, dict) else []
        )
        yield from problems or [
            Problem(path, f"invalid value {quote_value(value)}: must be {describe_type(kind)}")
        ]


def describe_type(kind: object) -> str:
    """Describe the values of a type: `an integer from 1 to 1024`."""
    return _describe(inspect.type_info(kind))


def _describe(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType():
            members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
            return " or ".join(map(_describe, members))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return _number(kind)
        case inspect.EnumType():
            return _choice([str(member.value) for member in kind.cls])
        case inspect.LiteralType():
            return _choice([str(value) for value in kind.values])
        case inspect.StrType():
            return "text" + (f" that matches {kind.pattern}" if kind.pattern else "")
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            return f"a list in which each item is {_describe(kind.item_type)}"
        case inspect.DictType():
            return f"a map in which each value is {_describe(kind.value_type)}"
        case inspect.StructType():
            return f"a map with {join_names([option.encode_name for option in kind.fields], max_names=20)}"
    return "of another type"


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    noun = "an integer" if isinstance(kind, inspect.IntType) else "a number"
    if kind.ge is not None and kind.le is not None:
        return f"{noun} from {kind.ge} to {kind.le}"
    bounds = {"of at least": kind.ge, "of at most": kind.le, "above": kind.gt, "below": kind.lt}
    limits = [f"{words} {bound}" for words, bound in bounds.items() if bound is not None]
    return " ".join((noun, " and ".join(limits))).rstrip()


def _choice(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _unknown(owner: str, name: str, options: list[str]) -> str:
    if not options:
        return f"unknown option: {owner} has no options"
    nearest = closest(name, options)
    hint = f"did you mean {nearest}? " if nearest else ""
    return f"unknown option: {hint}{owner} has {join_names(sorted(options), max_names=20)}"


def _struct_of(kind: object) -> type[Struct] | None:
    info = inspect.type_info(kind)
    for member in info.types if isinstance(info, inspect.UnionType) else (info,):
        if isinstance(member, inspect.StructType):
            return member.cls
    return None
