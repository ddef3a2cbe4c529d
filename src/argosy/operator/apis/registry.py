"""Lists the APIs that this operator serves. A further API is added here and nowhere else."""

from typing import Final

from argosy.kinds.crd_options import CustomResource
from argosy.kinds.text import unknown_name
from argosy.operator.apis.ares.api import ARES
from argosy.operator.apis.argosy import ARGOSY
from argosy.operator.apis.base import Api
from argosy.operator.apis.et import ET
from argosy.operator.apis.spot import SPOT

APIS: Final[tuple[Api, ...]] = (ARGOSY, ARES, ET, SPOT)

CUSTOM_RESOURCES: Final[tuple[type[CustomResource], ...]] = tuple(
    kind for api in APIS for kind in api.custom_resources
)
"""The kinds of all APIs, whose CRDs `argosy crds`, `argosy up` and the chart install."""


def find_api(name: str) -> Api:
    """Return the API of this name; raise ValueError if there is none."""
    api = next((api for api in APIS if api.name == name), None)
    if api is None:
        raise ValueError(unknown_name("API", name, [api.name for api in APIS]))
    return api
