"""What the engine asks of a type so that its objects can be fetched, cached and queued.

Any struct with a `resource` and metadata that has the four identifying fields will do; nothing is inherited.
"""

from typing import ClassVar, NamedTuple, Protocol, TypeVar

from argosy.kinds.resource import Resource


class Meta(Protocol):
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
    """Names one object of a kind; the namespace of a cluster-scoped object is empty."""

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
    """A resourceVersion as a number. Kubernetes promises since 1.35 that versions of one kind compare so."""
    return int(resource_version) if resource_version.isdecimal() else 0
