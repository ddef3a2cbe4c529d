"""Steps that create a CustomResourceDefinition for one case and wait until it is served."""

from tests.support.differential import get, post
from tests.support.manifests import DEFINITIONS, WIDGETS, definition

DEFINED = (
    post(DEFINITIONS, definition(), shown=False),
    get(f"{DEFINITIONS}/widgets.$ns.example.com", until="status.conditions.1", shown=False),
    get(WIDGETS, until="metadata.resourceVersion", shown=False),
)
"""The kind Widget, in a group named after the namespace of the case."""
