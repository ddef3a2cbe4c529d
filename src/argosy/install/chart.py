"""Reads the Helm chart and renders its objects, without Helm.

The chart is part of the package, so that each version of Argosy installs the operator of that version.
"""

import copy
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import msgspec
import yaml
from msgspec import Struct

from argosy.gotemplate import Templates
from argosy.install.schema import schema_errors
from argosy.kinds.meta import Json

RELEASE: Final = "argosy"
"""Release name of an installation by `argosy install`; it appears only in a label."""
WARNINGS_TEMPLATE: Final = "argosy.warnings"
"""The template with warnings for the user."""
KEEP_ANNOTATION: Final = "helm.sh/resource-policy"
"""Annotation of objects that are kept when the chart is uninstalled."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C if it is available: it reads large CRDs ten times as fast."""
_APPLY_ORDER: Final = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Service",
)
"""What comes before the other kinds, so that what runs finds its rights, its settings and its address."""


class ValuesError(Exception):
    """Values are invalid; the message names each with its problem."""


def chart_folder() -> Path:
    """Return the chart's folder: next to this module in an installed package, `charts/argosy` in a clone."""
    packaged = Path(__file__).with_name("helm-chart")
    return packaged if packaged.exists() else Path(__file__).parents[3] / "charts" / "argosy"


class ChartInfo(Struct, frozen=True, rename="camel"):
    """The contents of Chart.yaml."""

    name: str
    version: str
    app_version: str


@dataclass(frozen=True)
class Chart:
    path: Path

    @functools.cached_property
    def info(self) -> "ChartInfo":
        return msgspec.convert(_read(self.path / "Chart.yaml"), ChartInfo)

    def values(self, *overrides: Mapping[str, object]) -> Json:
        """Return the defaults with these overrides, the last first; raise ValuesError if they are invalid."""
        values = _read(self.path / "values.yaml")
        for override in overrides:
            values = merge_values(values, override, final=True)
        schema = msgspec.json.decode((self.path / "values.schema.json").read_bytes(), type=Json)
        if errors := list(schema_errors(schema, values)):
            raise ValuesError("; ".join(errors))
        return values

    def objects(self, namespace: str, values: Mapping[str, object], release: str = RELEASE) -> list[Json]:
        """Return all objects for these values, in the order in which they are applied."""
        templates, dot = self._templates, self._dot(namespace, values, release)
        sources = [source.name for source in self._sources() if source.suffix == ".yaml"]
        texts = [templates.render(name, dot) for name in sources]
        objects = [obj for text in texts for obj in yaml.load_all(text, _LOADER) if obj]
        return sorted(objects, key=_apply_order)

    def warnings(self, namespace: str, values: Mapping[str, object], release: str = RELEASE) -> str:
        """Return what the user should know about these values; empty if there is nothing."""
        return self._templates.render(WARNINGS_TEMPLATE, self._dot(namespace, values, release)).strip()

    def _sources(self) -> list[Path]:
        return sorted((self.path / "templates").iterdir())

    @functools.cached_property
    def _templates(self) -> Templates:
        templates = Templates(_functions())
        for source in self._sources():
            templates.add(source.name, source.read_text())
        return templates

    def _dot(self, namespace: str, values: Mapping[str, object], release: str) -> Json:
        return {
            "Values": copy.deepcopy(dict(values)),
            "Chart": {"AppVersion": self.info.app_version},
            "Release": {"Name": release, "Namespace": namespace},
            "Files": {"Glob": self._glob, "Get": self._get},
        }

    def _glob(self, pattern: str) -> dict[str, str]:
        paths = {str(path.relative_to(self.path)): path for path in self.path.rglob("*") if path.is_file()}
        return {name: path.read_text() for name, path in paths.items() if fnmatch(name, pattern)}

    def _get(self, name: str) -> str:
        return (self.path / name).read_text()


def _apply_order(obj: Json) -> int:
    kind = str(obj["kind"])
    return _APPLY_ORDER.index(kind) if kind in _APPLY_ORDER else len(_APPLY_ORDER)


def is_kept(obj: Mapping[str, object]) -> bool:
    """Return True if the object stays when the chart is uninstalled."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and annotations.get(KEEP_ANNOTATION) == "keep"


def merge_values(under: Mapping[str, object], over: Mapping[str, object], *, final: bool = False) -> Json:
    """Return `under` overridden by `over`: maps are merged, other values replaced.

    If `final`, a null removes the value, as with Helm; otherwise it is kept for a later merge.
    """
    result: Json = dict(under)
    for name, value in over.items():
        below = result.get(name)
        if value is None and final:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(below, dict):
            result[name] = merge_values(below, value, final=final)
        else:
            result[name] = value
    return result


def _read(path: Path) -> Json:
    return msgspec.yaml.decode(path.read_bytes(), type=Json)


def _functions() -> Mapping[str, Callable[..., object]]:
    """Return Helm's template functions, as far as the chart uses them."""
    return {
        "and": lambda *values: all(values),
        "default": lambda instead, value=None: value or instead,
        "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
        "eq": lambda left, right: left == right,
        "fromYaml": lambda text: msgspec.yaml.decode(text.encode()),
        "has": lambda item, items: item in items,
        "join": lambda separator, items: separator.join(map(str, items)),
        "list": lambda *items: list(items),
        "merge": lambda over, under: merge_values(under, over),
        "or": lambda *values: any(values),
        "nindent": lambda count, text: "".join(f"\n{' ' * count}{line}" for line in _lines(text)),
        "not": lambda value: not value,
        "quote": lambda value: msgspec.json.encode(str(value)).decode(),
        "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
        "toJson": _json,
        "toYaml": lambda value: msgspec.yaml.encode(value).decode().rstrip("\n"),
    }


def _json(value: object) -> str:
    """Return JSON as Go writes it: with sorted keys, and escaped for HTML."""
    text = msgspec.json.encode(value, order="sorted").decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _lines(text: str) -> Sequence[str]:
    return text.split("\n")
