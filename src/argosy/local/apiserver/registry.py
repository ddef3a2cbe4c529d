"""The kinds being served: the built-in table, and custom resources as their definitions come and go.

A kind served in several versions has one storage; its objects are kept under the version that stores them and
are given the version asked for when they leave.
"""

from collections.abc import Iterable
from functools import cached_property

import msgspec

from argosy.local.apiserver.status import qualified
from argosy.local.schema.builtin import KindInfo, Subresource, builtin_kinds
from argosy.local.schema.codec.decode import decode
from argosy.local.schema.crd.definition import object_schema
from argosy.local.schema.fieldselectors import SELECTABLE_FIELDS, Reader, reader_of
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.unstructured import part, parts, strings, text

CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_ELSEWHERE = {("events.k8s.io", "events"): "events"}  # one storage under two groups


class Served(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One kind in one version, as clients see it."""

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
    custom: "Custom | None" = None

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
        """How an object of this kind and version begins."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    @cached_property
    def blank_status(self) -> Json:
        """The status that a new object has: empty but for counts that are always shown."""
        blank: Json = {}
        decode(blank, self.schema.properties["status"])
        return blank

    def fields_of(self, obj: Json) -> tuple[str, ...]:
        """The values of the fields that a fieldSelector may name."""
        return tuple([read(obj) for read in self.readers])

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


class Custom(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the definition of a custom resource says about one version."""

    definition: str
    schema: Schema
    columns: tuple[Json, ...]
    scale: Json
    whole: Json
    warning: str = ""

    @property
    def replicas(self) -> tuple[str, ...]:
        """Where an object that can be scaled tells its replicas: in spec, then in status."""
        if not self.scale:
            return ()
        return text(self.scale, "specReplicasPath"), text(self.scale, "statusReplicasPath")

    @property
    def selector(self) -> str:
        """Where an object that can be scaled tells which pods are its own."""
        return text(self.scale, "labelSelectorPath")


class Registry:
    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Served] = {}
        self._by_kind: dict[tuple[str, str, str], Served] = {}
        self._by_definition: dict[str, list[Served]] = {}
        self.generation = 0
        for info in builtin_kinds():
            self._add(_builtin(info))

    def find(self, group: str, version: str, plural: str) -> Served | None:
        return self._served.get((group, version, plural))

    def builtin(self, group: str, plural: str) -> Served:
        """A built-in kind in version v1, which is always there."""
        return self._served[group, "v1", plural]

    def serves(self, group: str) -> bool:
        """Whether a group is one of Kubernetes' own."""
        return any(s.group == group and s.builtin for s in self._served.values())

    def find_kind(self, group: str, version: str, kind: str) -> Served | None:
        return self._by_kind.get((group, version, kind))

    def all(self) -> Iterable[Served]:
        return self._served.values()

    def define(self, definition: Json) -> None:
        """Serve the versions of an established CustomResourceDefinition, instead of those served before."""
        name = text(definition, "metadata", "name")
        self._forget(name)
        served = list(custom_kinds(definition))
        self._by_definition[name] = served
        for each in served:
            self._add(each)
        self.generation += 1

    def undefine(self, name: str) -> None:
        if name in self._by_definition:
            self._forget(name)
            self.generation += 1

    def versions(self, name: str) -> list[Served]:
        """The served versions of a definition."""
        return self._by_definition.get(name, [])

    def _add(self, served: Served) -> None:
        self._served[served.group, served.version, served.plural] = served
        self._by_kind[served.group, served.version, served.kind] = served

    def _forget(self, name: str) -> None:
        for each in self._by_definition.pop(name, ()):
            self._served.pop((each.group, each.version, each.plural), None)
            self._by_kind.pop((each.group, each.version, each.kind), None)


def custom_kinds(definition: Json) -> Iterable[Served]:
    """The served versions that a CustomResourceDefinition asks for."""
    spec = part(definition, "spec")
    names = part(spec, "names")
    group, plural, kind = text(spec, "group"), text(names, "plural"), text(names, "kind")
    versions = parts(spec, "versions")
    stored = next((text(v, "name") for v in versions if v.get("storage") is True), "")
    for version in versions:
        if version.get("served") is not True:
            continue
        raw_schema = part(version, "schema", "openAPIV3Schema")
        paths = tuple(text(f, "jsonPath").removeprefix(".") for f in parts(version, "selectableFields"))
        custom = Custom(
            definition=text(definition, "metadata", "name"),
            schema=object_schema(raw_schema),
            columns=tuple(parts(version, "additionalPrinterColumns")),
            scale=part(version, "subresources", "scale"),
            whole=definition,
            warning=_deprecation(version, group, kind),
        )
        yield Served(
            group=group,
            version=text(version, "name"),
            kind=kind,
            list_kind=text(names, "listKind") or kind + "List",
            plural=plural,
            singular=text(names, "singular") or kind.lower(),
            short_names=tuple(strings(names, "shortNames")),
            categories=tuple(strings(names, "categories")),
            namespaced=text(spec, "scope") == "Namespaced",
            verbs=CUSTOM_VERBS,
            subresources=tuple(_custom_subresources(version, group, kind)),
            storage=qualified(group, plural),
            storage_version=f"{group}/{stored}",
            field_paths=paths,
            readers=tuple(reader_of(group, kind, path) for path in paths),
            custom=custom,
        )


def _custom_subresources(version: Json, group: str, kind: str) -> Iterable[Subresource]:
    declared = part(version, "subresources")
    verbs = ("get", "patch", "update")
    if isinstance(declared.get("status"), dict):
        yield Subresource(name="status", group=group, version=text(version, "name"), kind=kind, verbs=verbs)
    if isinstance(declared.get("scale"), dict):
        yield Subresource(name="scale", group="autoscaling", version="v1", kind="Scale", verbs=verbs)


def _deprecation(version: Json, group: str, kind: str) -> str:
    if version.get("deprecated") is not True:
        return ""
    usual = f"{group}/{text(version, 'name')} {kind} is deprecated"
    return text(version, "deprecationWarning") or usual


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
