"""The built-in kinds of Kubernetes, from the generated table `builtin.json`.

The table is loaded once (a few milliseconds); the `Schema` of a kind is built on first use and shared, so
that the pod template of a Deployment has the same tree as a Pod.
"""

from functools import cache
from importlib.resources import files

import msgspec

from argosy.local.schema.model import Schema

SCALE = "io.k8s.api.autoscaling.v1.Scale"


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """A subresource and its kind (that of `scale` is autoscaling/v1 Scale)."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]
    definition: str = ""


class KindInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[Subresource, ...]
    definition: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def schema(self) -> Schema:
        """The kind's schema, built on first use and shared by all callers."""
        return definition(self.definition)

    def subresource(self, name: str) -> Subresource | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


class _Table(msgspec.Struct, frozen=True):
    kubernetes: str
    kinds: tuple[KindInfo, ...]
    definitions: dict[str, dict[str, object]]


def builtin_kinds() -> tuple[KindInfo, ...]:
    """Return every built-in kind, sorted by group, version and plural."""
    return _table().kinds


def builtin_kind(group: str, version: str, kind: str) -> KindInfo | None:
    """Return a kind by its name; None if it is not in the table."""
    return _by_kind().get((group, version, kind))


def kubernetes_version() -> str:
    """Return the version of Kubernetes that the table was generated from, such as v1.36.3."""
    return _table().kubernetes


@cache
def definition(name: str) -> Schema:
    """Return a definition by its OpenAPI name, such as io.k8s.api.core.v1.PodSpec."""
    return Schema(_table().definitions[name], definition, name)


def definition_json() -> dict[str, dict[str, object]]:
    """Return all definitions as generated, for OpenAPI documents."""
    return _table().definitions


@cache
def _by_kind() -> dict[tuple[str, str, str], KindInfo]:
    return {(k.group, k.version, k.kind): k for k in _table().kinds}


@cache
def _table() -> _Table:
    raw = files("argosy.local.schema").joinpath("builtin.json").read_bytes()
    return msgspec.json.decode(raw, type=_Table)
