"""Lists the APIs that this operator serves. A further API is added here and nowhere else."""

from typing import Final

from argosy.kinds.messages import unknown_name
from argosy.operator.apis.ares.api import ARES
from argosy.operator.apis.argosy import ARGOSY
from argosy.operator.apis.base import Api

APIS: Final[tuple[Api, ...]] = (ARGOSY, ARES)


def find_api(name: str) -> Api:
    """Return the API of this name; raise ValueError if there is none."""
    api = next((api for api in APIS if api.name == name), None)
    if api is None:
        raise ValueError(unknown_name("API", name, [known.name for known in APIS]))
    return api
