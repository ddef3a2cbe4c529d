"""The registry of served kinds: built-in kinds, and custom resources while their definitions exist.

A kind with several versions has one storage; its objects are stored in the storage version and converted to
the requested version in responses.
"""

from collections.abc import Iterable
from functools import cached_property

import msgspec

from argosy.local.apiserver.status import qualified
from argosy.local.schema.builtin import KindInfo, Subresource, builtin_kinds
from argosy.local.schema.codec.decode import decode
from argosy.local.schema.crd.definition import CrdInfo, CrdVersion, parse_crd
from argosy.local.schema.fieldselectors import SELECTABLE_FIELDS, Reader, reader_of
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.unstructured import get_str

CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_ELSEWHERE = {("events.k8s.io", "events"): "events"}  # one storage under two groups


class Served(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A version of a kind."""

    group: str
    version: str
    kind: str
    list_kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[Subresource, ...] = ()
    storage: str
    storage_version: str
    field_paths: tuple[str, ...] = ()
    readers: tuple[Reader, ...] = ()
    builtin: KindInfo | None = None
    custom: CrdVersion | None = None
    crd: CrdInfo | None = None

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def schema(self) -> Schema:
        if self.custom is not None:
            return self.custom.schema
        assert self.builtin is not None
        return self.builtin.schema

    @cached_property
    def prefix(self) -> bytes:
        """The first bytes of an encoded object of this kind and version."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    @cached_property
    def blank_status(self) -> Json:
        """The status of a new object: empty except for fields that are always written."""
        blank: Json = {}
        decode(blank, self.schema.properties["status"])
        return blank

    def fields_of(self, obj: Json) -> tuple[str, ...]:
        """Return the values of the fields that fieldSelectors can use."""
        return tuple([read(obj) for read in self.readers])

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


class Registry:
    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Served] = {}
        self._by_definition: dict[str, list[Served]] = {}
        self.generation = 0
        for info in builtin_kinds():
            self._add(_builtin(info))

    def find(self, group: str, version: str, plural: str) -> Served | None:
        return self._served.get((group, version, plural))

    def builtin(self, group: str, plural: str) -> Served:
        """Return a built-in kind in version v1."""
        return self._served[group, "v1", plural]

    def serves(self, group: str) -> bool:
        """Return True if a group has built-in kinds."""
        return any(s.group == group and s.builtin for s in self._served.values())

    def all(self) -> Iterable[Served]:
        return self._served.values()

    def define(self, definition: Json) -> None:
        """Serve the versions of an established CustomResourceDefinition, and no longer the previous ones."""
        name = get_str(definition, "metadata", "name")
        self._forget(name)
        served = list(custom_kinds(definition))
        self._by_definition[name] = served
        for resource in served:
            self._add(resource)
        self.generation += 1

    def undefine(self, name: str) -> None:
        if name in self._by_definition:
            self._forget(name)
            self.generation += 1

    def versions(self, name: str) -> list[Served]:
        """Return the served versions of a definition."""
        return self._by_definition.get(name, [])

    def _add(self, served: Served) -> None:
        self._served[served.group, served.version, served.plural] = served

    def _forget(self, name: str) -> None:
        for resource in self._by_definition.pop(name, ()):
            self._served.pop((resource.group, resource.version, resource.plural), None)


def custom_kinds(definition: Json) -> Iterable[Served]:
    """Yield the served versions of a CustomResourceDefinition."""
    crd = parse_crd(definition)
    for version in crd.versions:
        if not version.served:
            continue
        yield Served(
            group=crd.group,
            version=version.name,
            kind=crd.kind,
            list_kind=crd.list_kind,
            plural=crd.plural,
            singular=crd.singular,
            short_names=crd.short_names,
            categories=crd.categories,
            namespaced=crd.namespaced,
            verbs=CUSTOM_VERBS,
            subresources=tuple(_custom_subresources(crd, version)),
            storage=qualified(crd.group, crd.plural),
            storage_version=f"{crd.group}/{crd.storage_version}",
            field_paths=version.selectable,
            readers=tuple(reader_of(crd.group, crd.kind, path) for path in version.selectable),
            custom=version,
            crd=crd,
        )


def _custom_subresources(crd: CrdInfo, version: CrdVersion) -> Iterable[Subresource]:
    verbs = ("get", "patch", "update")
    if version.has_status:
        yield Subresource(name="status", group=crd.group, version=version.name, kind=crd.kind, verbs=verbs)
    if version.scale is not None:
        yield Subresource(name="scale", group="autoscaling", version="v1", kind="Scale", verbs=verbs)


def _builtin(info: KindInfo) -> Served:
    paths = tuple(sorted(SELECTABLE_FIELDS.get((info.group, info.kind), ())))
    storage = _ELSEWHERE.get((info.group, info.plural)) or qualified(info.group, info.plural)
    return Served(
        group=info.group,
        version=info.version,
        kind=info.kind,
        list_kind=info.kind + "List",
        plural=info.plural,
        singular=info.singular,
        short_names=info.short_names,
        categories=info.categories,
        namespaced=info.namespaced,
        verbs=info.verbs,
        subresources=info.subresources,
        storage=storage,
        storage_version="v1" if storage == "events" else info.api_version,
        field_paths=paths,
        readers=tuple(reader_of(info.group, info.kind, path) for path in paths),
        builtin=info,
    )
