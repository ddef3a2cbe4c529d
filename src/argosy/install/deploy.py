"""Renders the files under `deploy/` from the chart: the manifests that AresOperator's README has users apply.

`python -m argosy.install.deploy deploy` writes them. File names sort so that a single
`kubectl apply -f build/crd/.` creates objects before others need them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from argosy.install.chart import Chart, chart_folder
from argosy.install.presets import PRESETS
from argosy.kinds.meta import Json

_NOTE: Final = "# Rendered from charts/argosy by `python -m argosy.install.deploy deploy`. Do not edit.\n"
_RUNNING: Final = ("ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
_FILES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "build/crd/00-namespace.yaml": lambda obj: obj["kind"] == "Namespace",
    "build/crd/10-aresjobs.yaml": lambda obj: obj["kind"] == "CustomResourceDefinition",
    "build/crd/20-rights.yaml": lambda obj: (
        obj["kind"] not in (*_RUNNING, "Namespace", "CustomResourceDefinition")
    ),
    "build/observer.yaml": lambda obj: obj["kind"] in _RUNNING and _name(obj) == "ares-observer",
    "build/operator.yaml": lambda obj: obj["kind"] in _RUNNING and _name(obj) == "ares-operator",
}


def ares_files() -> dict[str, str]:
    """Return the contents of the files by their path below `deploy/ares`."""
    chart, preset = Chart(chart_folder()), PRESETS["ares"]
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": preset.namespace}}
    objects = [namespace, *chart.objects(preset.namespace, chart.values(preset.values))]
    return {
        path: _NOTE + yaml.dump_all(filter(belongs, objects), Dumper=_Dumper, sort_keys=False)
        for path, belongs in _FILES.items()
    }


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as block scalars, which are easier to edit."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _name(obj: Json) -> str:
    metadata = obj["metadata"]
    return str(metadata["name"]) if isinstance(metadata, dict) else ""


def main(arguments: Sequence[str]) -> None:
    for path, content in ares_files().items():
        file = Path(arguments[0]) / "ares" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


if __name__ == "__main__":
    main(sys.argv[1:])
