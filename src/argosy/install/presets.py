"""Chooses the chart's values and the namespace for an installation of some or all APIs."""

from collections.abc import Mapping, Sequence
from typing import Final

from argosy.install.chart import merge_values
from argosy.kinds.meta import Json
from argosy.operator.apis.base import Api, Preset
from argosy.operator.apis.registry import APIS

NAMESPACE_KEY: Final = "namespace"
"""Key of a file with values that names the operator's namespace."""


def api_preset(api: Api, apis: Sequence[Api] = APIS) -> Preset:
    """Return the installation of one API alone, as its users expect it."""
    served = {"apis": {other.name: other is api for other in apis}}
    return Preset(api.preset.namespace, merge_values(served, api.preset.values))


PRESETS: Final[Mapping[str, Preset]] = {api.name: api_preset(api) for api in APIS}


def split_namespace(values: Mapping[str, object]) -> tuple[Json, str]:
    """Return values of a file without `namespace`, and the operator's namespace; empty if it has none.

    The namespace is not a value of the chart, since Helm has an option for it.
    """
    chart_values = {name: value for name, value in values.items() if name != NAMESPACE_KEY}
    return chart_values, str(values.get(NAMESPACE_KEY) or "")


def choose_preset(names: Sequence[str]) -> Preset:
    """Return the installation of these APIs: one alone as its users expect it, several with one operator."""
    if len(set(names)) == 1:
        return PRESETS[names[0]]
    return Preset(values={"apis": {name: name in names for name in PRESETS}} if names else {})
