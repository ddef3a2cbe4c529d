"""Objects of kinds that are known only at run time: typed metadata and the whole JSON.

`AnyObject` is a plain class, because msgspec would decode JSON into the fields of a struct. The codec decodes
it with the hook `decode_any`, so that a dynamic kind can be used wherever a typed one can.
"""

from typing import ClassVar

import msgspec

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

Json = dict[str, object]


class AnyObject:
    """An object of any kind: `metadata` for its identity, `raw` for everything."""

    resource: ClassVar[Resource]
    __slots__ = ("metadata", "raw")

    def __init__(self, metadata: ObjectMeta, raw: Json) -> None:
        self.metadata = metadata
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyObject) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]  # it contains a dict

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metadata.namespace}/{self.metadata.name})"

    @classmethod
    def from_json(cls, raw: Json) -> "AnyObject":
        raw.setdefault("apiVersion", cls.resource.api_version)
        raw.setdefault("kind", cls.resource.kind)
        return cls(msgspec.convert(raw.get("metadata", {}), ObjectMeta), raw)


def dynamic_kind(resource: Resource) -> type[AnyObject]:
    """Return a type for the objects of a resource that is known only at run time."""
    return type(resource.kind, (AnyObject,), {"resource": resource, "__slots__": ()})


def decode_any(kind: type, value: object) -> object:
    """The msgspec hook that makes an `AnyObject` of decoded JSON."""
    if kind is object:
        return value  # msgspec also calls the hook for the values of a `dict[str, object]`
    if issubclass(kind, AnyObject) and isinstance(value, dict):
        return kind.from_json(value)
    raise NotImplementedError(f"cannot decode into {kind.__name__}")
