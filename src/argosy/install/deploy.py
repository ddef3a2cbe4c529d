"""The files under `deploy/`, rendered from the chart: what the original READMEs tell their users to apply.

`python -m argosy.install.deploy deploy` writes them. Names of files sort so that one pass of
`kubectl apply -f build/crd/.` finds everything that it needs.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from argosy.install.chart import Chart, chart_folder
from argosy.install.presets import PRESETS
from argosy.kinds.meta import Json

_NOTE: Final = (
    "# Rendered from charts/argosy by `python -m argosy.install.deploy deploy`; not to be edited.\n"
)
_RUNNING: Final = ("ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy")
_FILES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "build/crd/00-namespace.yaml": lambda one: one["kind"] == "Namespace",
    "build/crd/10-aresjobs.yaml": lambda one: one["kind"] == "CustomResourceDefinition",
    "build/crd/20-rights.yaml": lambda one: (
        one["kind"] not in (*_RUNNING, "Namespace", "CustomResourceDefinition")
    ),
    "build/observer.yaml": lambda one: one["kind"] in _RUNNING and _name(one) == "ares-observer",
    "build/operator.yaml": lambda one: one["kind"] in _RUNNING and _name(one) == "ares-operator",
}


def ares_files() -> dict[str, str]:
    """Content by path below `deploy/ares`."""
    chart, chosen = Chart(chart_folder()), PRESETS["ares"]
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chosen.namespace}}
    objects = [namespace, *chart.objects(chosen.namespace, chart.values(chosen.values))]
    return {
        path: _NOTE + yaml.dump_all([one for one in objects if wanted(one)], Dumper=_Dumper, sort_keys=False)
        for path, wanted in _FILES.items()
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stay so: people edit them."""


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Dumper.add_representer(str, _represented)


def _name(one: Json) -> str:
    metadata = one["metadata"]
    return str(metadata["name"]) if isinstance(metadata, dict) else ""


def main(arguments: Sequence[str]) -> None:
    for path, content in ares_files().items():
        file = Path(arguments[0]) / "ares" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


if __name__ == "__main__":
    main(sys.argv[1:])
