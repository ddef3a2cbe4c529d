"""What is wrong with the options of a framework: every wrong one, with its own path and what is possible.

Options are declared once, as the adapter's `Options`; what is possible is read from there, so that the words
cannot differ from the check and an adapter from elsewhere is told about as well as our own.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec
from msgspec import Struct, inspect

from argosy.kinds.messages import closest, join_names, quote_value
from argosy.workload.model import Json, Problem


def option_problems(framework: str, options: Json, kind: type[Struct], path: str) -> list[Problem]:
    """Every option that does not fit `kind`; empty if `options_of` will read them."""
    found = list(_struct_problems(f"framework {framework}", options, kind, path))
    if not found:
        try:
            msgspec.convert(dict(options), kind)
        except msgspec.ValidationError as error:  # a rule of the adapter's own about several of them
            found.append(Problem(path, str(error)))
    return found


def _struct_problems(owner: str, written: Json, kind: type[Struct], path: str) -> Iterator[Problem]:
    fields = _fields(kind)
    for name, value in written.items():
        if name not in fields:
            yield Problem(f"{path}.{name}", _unknown(owner, name, list(fields)))
        else:
            yield from _value_problems(f"{path}.{name}", value, fields[name].type)
    for name, one in fields.items():
        if one.required and name not in written:
            yield Problem(f"{path}.{name}", f"is missing; must be {describe_type(one.type)}")


@cache
def _fields(kind: type[Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Looked up once: that takes long, and leaves garbage for the collector."""
    return {one.encode_name: one for one in msgspec.structs.fields(kind)}


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
    """What may be written for a type, in words: `an integer from 1 to 1024`."""
    return _describe(inspect.type_info(kind))


def _describe(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType():
            kinds = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            return " or ".join(_describe(one) for one in kinds)
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
            return f"a list, each of it {_describe(kind.item_type)}"
        case inspect.DictType():
            return f"a map, each value of it {_describe(kind.value_type)}"
        case inspect.StructType():
            return f"a map with {join_names([one.encode_name for one in kind.fields], most=20)}"
    return "of another form"


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    noun = "an integer" if isinstance(kind, inspect.IntType) else "a number"
    if kind.ge is not None and kind.le is not None:
        return f"{noun} from {kind.ge} to {kind.le}"
    bounds = {"of at least": kind.ge, "of at most": kind.le, "above": kind.gt, "below": kind.lt}
    said = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
    return " ".join((noun, " and ".join(said))).rstrip()


def _choice(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _unknown(owner: str, name: str, known: list[str]) -> str:
    if not known:
        return f"there is no such option; {owner} has none"
    nearest = closest(name, known)
    hint = f"did you mean {nearest}? " if nearest else ""
    return f"there is no such option; {hint}{owner} has {join_names(sorted(known), most=20)}"


def _struct_of(kind: object) -> type[Struct] | None:
    info = inspect.type_info(kind)
    for one in info.types if isinstance(info, inspect.UnionType) else (info,):
        if isinstance(one, inspect.StructType):
            return one.cls
    return None
