"""Installations of single APIs: the chart's values and the namespace under which their users know them."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.kinds.meta import Json


class Preset(Struct, frozen=True):
    namespace: str
    values: Json


PRESETS: Final[Mapping[str, Preset]] = {
    "argosy": Preset(OPERATOR_NAMESPACE, {"apis": {"argosy": True, "ares": False}}),
    "ares": Preset(
        "ares",
        {
            "name": "ares-operator",
            "apis": {"argosy": False, "ares": True},
            "observer": {"enabled": True},
            "replicas": 1,
            "podDisruptionBudget": {"enabled": False},
            "features": {"remoteExec": False},
            "gang": {"backend": "auto"},
        },
    ),
}


def choose_preset(apis: Sequence[str]) -> Preset:
    """What to install for these APIs: one alone as its own users expect it, several with one operator."""
    if len(set(apis)) == 1:
        return PRESETS[apis[0]]
    chosen = {name: name in apis for name in PRESETS} if apis else {}
    return Preset(OPERATOR_NAMESPACE, {"apis": chosen} if apis else {})
