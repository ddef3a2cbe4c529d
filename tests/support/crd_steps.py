"""Steps that define the custom kind of a case, and wait until it is served."""

from tests.support.differential import get, post
from tests.support.manifests import DEFINITIONS, WIDGETS, definition

DEFINED = (
    post(DEFINITIONS, definition(), shown=False),
    get(f"{DEFINITIONS}/widgets.$ns.example.com", until="status.conditions.1", shown=False),
    get(WIDGETS, until="metadata.resourceVersion", shown=False),
)
"""The kind `widgets` in a group of the case's own."""
