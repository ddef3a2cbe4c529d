"""Objects of kinds known only at run time: the whole JSON, with typed metadata beside it.

`AnyObject` is a plain class, not a struct, because msgspec would otherwise decode into its fields; the hook
`decode_any` is what every decoder of the engine uses, so a dynamic kind goes wherever a typed one does.
"""

from typing import ClassVar

import msgspec

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

Json = dict[str, object]


class AnyObject:
    """One object as it came: `metadata` for identity, `raw` for everything."""

    resource: ClassVar[Resource]
    __slots__ = ("metadata", "raw")

    def __init__(self, metadata: ObjectMeta, raw: Json) -> None:
        self.metadata = metadata
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyObject) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]  # it holds a dict, and two versions of an object differ

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metadata.namespace}/{self.metadata.name})"

    @classmethod
    def from_json(cls, raw: Json) -> "AnyObject":
        raw.setdefault("apiVersion", cls.resource.api_version)
        raw.setdefault("kind", cls.resource.kind)
        return cls(msgspec.convert(raw.get("metadata", {}), ObjectMeta), raw)


def dynamic_kind(resource: Resource) -> type[AnyObject]:
    """A fetchable type for a resource found at run time."""
    return type(resource.kind, (AnyObject,), {"resource": resource, "__slots__": ()})


def decode_any(kind: type, value: object) -> object:
    """The msgspec hook that builds an `AnyObject` out of decoded JSON."""
    if kind is object:
        return value  # msgspec asks about the values of a `dict[str, object]` too
    if issubclass(kind, AnyObject) and isinstance(value, dict):
        return kind.from_json(value)
    raise NotImplementedError(f"cannot decode into {kind.__name__}")
