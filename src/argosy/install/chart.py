"""The chart as Argosy itself reads it: defaults, a check of what the user gave, and the objects.

It is part of the package, so that a version of Argosy installs the operator of that version.
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
"""The name of an installation that is not Helm's; only a label shows it."""
WARNINGS_TEMPLATE: Final = "argosy.warnings"
"""The template with warnings for the user."""
KEEP_ANNOTATION: Final = "helm.sh/resource-policy"
"""The annotation of what stays when the rest goes."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C where there is one: ten times as fast over large definitions."""
_APPLY_ORDER: Final = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
)


class ValuesError(Exception):
    """Values that the chart does not take; the message says which, and why."""


def chart_folder() -> Path:
    """In an installed package the chart lies beside this module, in a clone at its root."""
    beside = Path(__file__).with_name("helm-chart")
    return beside if beside.exists() else Path(__file__).parents[3] / "charts" / "argosy"


class ChartInfo(Struct, frozen=True, rename="camel"):
    """What Chart.yaml says."""

    name: str
    version: str
    app_version: str


@dataclass(frozen=True)
class Chart:
    path: Path

    @functools.cached_property
    def info(self) -> "ChartInfo":
        return msgspec.convert(_read(self.path / "Chart.yaml"), ChartInfo)

    def values(self, *given: Mapping[str, object]) -> Json:
        """The chart's defaults with what was given over them, the last first; checked."""
        together = _read(self.path / "values.yaml")
        for each in given:
            together = merge_values(together, each, final=True)
        schema = msgspec.json.decode((self.path / "values.schema.json").read_bytes(), type=Json)
        if wrong := list(schema_errors(schema, together)):
            raise ValuesError("; ".join(wrong))
        return together

    def objects(self, namespace: str, values: Mapping[str, object], release: str = RELEASE) -> list[Json]:
        """Everything that is installed with these values, those first that others need."""
        templates, dot = self._templates(), self._dot(namespace, values, release)
        sources = [source.name for source in self._sources() if source.suffix == ".yaml"]
        texts = [templates.render(name, dot) for name in sources]
        found = [one for text in texts for one in yaml.load_all(text, _LOADER) if one]
        return sorted(
            found, key=lambda one: _APPLY_ORDER.index(one["kind"]) if one["kind"] in _APPLY_ORDER else 99
        )

    def warnings(self, namespace: str, values: Mapping[str, object], release: str = RELEASE) -> str:
        """Return what the user should know about these values; empty if there is nothing."""
        return self._templates().render(WARNINGS_TEMPLATE, self._dot(namespace, values, release)).strip()

    def _sources(self) -> list[Path]:
        return sorted((self.path / "templates").iterdir())

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


def is_kept(obj: Mapping[str, object]) -> bool:
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and annotations.get(KEEP_ANNOTATION) == "keep"


def merge_values(under: Mapping[str, object], over: Mapping[str, object], *, final: bool = False) -> Json:
    """Maps are merged, all else replaced; in the end null takes a default away, as with Helm."""
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
    """Those of Helm's functions that the chart uses."""
    return {
        "and": lambda *values: all(values),
        "default": lambda instead, value=None: value or instead,
        "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
        "eq": lambda one, other: one == other,
        "fromYaml": lambda text: msgspec.yaml.decode(text.encode()),
        "has": lambda item, items: item in items,
        "list": lambda *items: list(items),
        "merge": lambda over, under: merge_values(under, over),
        "nindent": lambda count, text: "".join(f"\n{' ' * count}{line}" for line in _lines(text)),
        "not": lambda value: not value,
        "quote": lambda value: msgspec.json.encode(str(value)).decode(),
        "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
        "toJson": _json,
        "toYaml": lambda value: msgspec.yaml.encode(value).decode().rstrip("\n"),
    }


def _json(value: object) -> str:
    """As Go writes it: in the order of keys, and safe to stand in HTML."""
    text = msgspec.json.encode(value, order="sorted").decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _lines(text: str) -> Sequence[str]:
    return text.split("\n")
