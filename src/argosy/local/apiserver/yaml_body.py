"""Parses YAML bodies, and rejects those whose aliases expand to more than the size limit of bodies.

Nested anchors with several aliases each expand to any size from a few lines. The size is therefore computed
on the composed nodes, in which an alias is a reference, before values are constructed.
"""

import msgspec
import yaml

from argosy.local.apiserver.http import BODY_LIMIT

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ExpansionError(ValueError):
    """A document that is too large with its aliases expanded, or that contains itself."""


def load_first(raw: bytes, limit: int = BODY_LIMIT) -> object:
    """Return the first document as JSON values; None for an empty body. Further documents are ignored."""
    loader = _LOADER(raw)
    node = loader.get_node() if loader.check_node() else None
    if node is None:
        return None
    if b"&" in raw and _expanded_size(node, limit) > limit:
        raise ExpansionError(f"document contains excessive aliasing: more than {limit} bytes when expanded")
    # As in Kubernetes, timestamps and other YAML types become text.
    return msgspec.to_builtins(loader.construct_document(node), str_keys=True)


def _expanded_size(root: yaml.Node, limit: int) -> int:
    """Return the approximate size of a document with aliases expanded, above the limit if it is recursive."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        computed = sizes.get(id(node))
        if computed is not None:
            return computed
        sizes[id(node)] = limit + 1  # until it is computed: a node that is reached again contains itself
        if isinstance(node, yaml.MappingNode):
            total = sum(size(key) + size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            total = sum(size(item) for item in node.value)
        else:
            total = len(node.value)
        sizes[id(node)] = total + 1
        return total + 1

    return size(root)
