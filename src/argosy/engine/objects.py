"""The interface of types whose objects can be fetched, cached and queued.

Any struct with a `resource` and with metadata that has four identifying fields qualifies; there is no base
class.
"""

from typing import ClassVar, NamedTuple, Protocol, TypeVar

from argosy.kinds.resource import Resource


class Meta(Protocol):
    """The fields of object metadata that the engine reads."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class ApiObject(Protocol):
    """A type whose objects the client can fetch."""

    resource: ClassVar[Resource]

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=ApiObject)


class Key(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(obj: ApiObject) -> Key:
    meta = obj.metadata
    return Key(meta.namespace, meta.name)


def version_of(obj: ApiObject) -> int:
    return version_number(obj.metadata.resource_version)


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number. Since 1.35 Kubernetes guarantees that they can be compared."""
    return int(resource_version) if resource_version.isdecimal() else 0
