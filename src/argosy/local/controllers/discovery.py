"""Discovers the kinds that the API server serves, including those of CRDs."""

from functools import cache
from typing import cast

import msgspec
from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.objects import ApiObject
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

AGGREGATED_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ServedKind(Struct, frozen=True):
    resource: Resource
    verbs: frozenset[str]

    @property
    def collectable(self) -> bool:
        """Return True if the garbage collector can watch and delete its objects."""
        return {"list", "watch", "delete"} <= self.verbs


class Catalog(Struct, frozen=True):
    kinds: tuple[ServedKind, ...]
    complete: bool = True
    """False if discovery failed for a group: kinds that are missing here may still exist."""

    def find(self, api_version: str, kind: str) -> Resource | None:
        """Find a kind by group and kind: an object has the same uid in every served version."""
        for served in self.kinds:
            group = api_version.rpartition("/")[0]
            if (served.resource.group, served.resource.kind) == (group, kind):
                return served.resource
        return None


async def discover(client: Client) -> Catalog:
    served: dict[tuple[str, str], ServedKind] = {}
    complete = True
    for path in ("/api", "/apis"):
        answer = await client.request("GET", path, headers={"Accept": AGGREGATED_DISCOVERY})
        for group in _decoder.decode(answer).items:
            for version in group.versions:
                complete &= version.freshness != "Stale"
                for resource in version.resources:
                    kind = _served_kind(group.metadata.name, version.version, resource)
                    served.setdefault((group.metadata.name, resource.resource), kind)
    return Catalog(tuple(served.values()), complete)


@cache
def metadata_type(resource: Resource) -> type[ApiObject]:
    """Return a type with only the metadata of a kind that is discovered at run time."""
    kind = msgspec.defstruct(resource.kind, [("metadata", ObjectMeta)], namespace={"resource": resource})
    return cast("type[ApiObject]", kind)


def _served_kind(group: str, version: str, discovered: "_Resource") -> ServedKind:
    kind = discovered.response_kind
    resource = Resource(
        kind.group or group,
        kind.version or version,
        kind.kind,
        discovered.resource,
        discovered.scope == "Namespaced",
    )
    return ServedKind(resource, frozenset(discovered.verbs))


class _Kind(Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(Struct, rename="camel"):
    resource: str
    response_kind: _Kind = field(default_factory=_Kind)
    scope: str = ""
    verbs: list[str] = field(default_factory=list)


class _Version(Struct):
    version: str
    resources: list[_Resource] = field(default_factory=list)
    freshness: str = "Current"


class _Name(Struct):
    name: str = ""


class _Group(Struct):
    metadata: _Name = field(default_factory=_Name)
    versions: list[_Version] = field(default_factory=list)


class _Groups(Struct):
    items: list[_Group]


_decoder = msgspec.json.Decoder(_Groups)
