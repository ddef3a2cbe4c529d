"""Renders the files under `deploy/` from the chart: the manifests that READMEs of other operators have users
apply.

`python -m argosy.install.deploy deploy` writes them. A single `kubectl` command creates objects before others
need them: file names sort accordingly, and so do the objects of one file. An API may have a file with values,
which users edit; its other files are rendered with these values.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml
from msgspec import Struct

from argosy.install.chart import Chart, chart_folder, merge_values
from argosy.install.presets import PRESETS, split_namespace
from argosy.kinds.meta import Json

_NOTE: Final = "# Rendered from charts/argosy by `python -m argosy.install.deploy deploy`. Do not edit.\n"
_RUNNING: Final = ("ConfigMap", "DaemonSet", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")


class Layout(Struct, frozen=True):
    """The files of one API."""

    files: Mapping[str, Callable[[Json], bool]]
    """Which objects a file has, by its path below the folder of the API."""
    values: str = ""
    """Path of the file with values; empty if there is none."""


LAYOUTS: Final[Mapping[str, Layout]] = {
    "ares": Layout(
        {
            "build/crd/00-namespace.yaml": lambda obj: obj["kind"] == "Namespace",
            "build/crd/10-aresjobs.yaml": lambda obj: obj["kind"] == "CustomResourceDefinition",
            "build/crd/20-rights.yaml": lambda obj: (
                obj["kind"] not in (*_RUNNING, "Namespace", "CustomResourceDefinition")
            ),
            "build/observer.yaml": lambda obj: obj["kind"] in _RUNNING and _name(obj) == "ares-observer",
            "build/operator.yaml": lambda obj: obj["kind"] in _RUNNING and _name(obj) == "ares-operator",
        }
    ),
    "spot": Layout(
        {
            "config/crd/crds.yaml": lambda obj: obj["kind"] == "CustomResourceDefinition",
            "config/manager/manager.yaml": lambda obj: obj["kind"] in (*_RUNNING, "Namespace"),
            "config/rbac/rbac.yaml": lambda obj: (
                obj["kind"] not in (*_RUNNING, "Namespace", "CustomResourceDefinition")
            ),
        }
    ),
    "et": Layout({"config/deploy.yaml": lambda _obj: True}, values="config/values.yaml"),
}


def rendered_files(deploy: Path) -> dict[str, str]:
    """Return the contents of all files by their path below `deploy`, which has the files with values."""
    return {
        f"{api}/{path}": content
        for api, layout in LAYOUTS.items()
        for path, content in _render_api(api, layout, deploy / api)
    }


def _render_api(api: str, layout: Layout, folder: Path) -> Iterator[tuple[str, str]]:
    chart, preset = Chart(chart_folder()), PRESETS[api]
    edited = yaml.safe_load((folder / layout.values).read_text()) if layout.values else {}
    given, given_namespace = split_namespace(edited)
    name = given_namespace or preset.namespace
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    values = chart.values(merge_values(preset.values, given))
    objects = [namespace, *chart.objects(name, values)]
    for path, belongs in layout.files.items():
        yield path, _NOTE + yaml.dump_all(filter(belongs, objects), Dumper=_Dumper, sort_keys=False)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes texts of several lines as block scalars, which are easier to edit."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _name(obj: Json) -> str:
    metadata = obj["metadata"]
    return str(metadata["name"]) if isinstance(metadata, dict) else ""


def main(arguments: Sequence[str]) -> None:
    deploy = Path(arguments[0])
    for path, content in rendered_files(deploy).items():
        file = deploy / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


if __name__ == "__main__":
    main(sys.argv[1:])
