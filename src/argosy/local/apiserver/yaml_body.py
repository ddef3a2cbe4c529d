"""Reads YAML bodies without ever expanding their aliases beyond what a body may have.

An anchor that is named by several aliases, each inside another anchor, grows to any size in a few lines. The
size is therefore computed on the composed nodes, where an alias is still a reference, before values are made.
"""

import msgspec
import yaml

from argosy.local.apiserver.http import BODY_LIMIT

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ExpansionError(ValueError):
    """A document that is too large with its aliases expanded, or that contains itself."""


def load_first(raw: bytes, limit: int = BODY_LIMIT) -> object:
    """The first document as JSON values; none for an empty body. What follows it is not looked at."""
    loader = _LOADER(raw)
    node = loader.get_node() if loader.check_node() else None
    if node is None:
        return None
    if b"&" in raw and _expanded_size(node, limit) > limit:
        raise ExpansionError(f"document contains excessive aliasing: more than {limit} bytes when expanded")
    # Times and other YAML types become JSON as Kubernetes reads it: by their text.
    return msgspec.to_builtins(loader.construct_document(node), str_keys=True)


def _expanded_size(root: yaml.Node, limit: int) -> int:
    """About how many bytes a document has without aliases; beyond the limit for one that contains itself."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        sizes[id(node)] = limit + 1  # as long as it is open: met again, it contains itself
        if isinstance(node, yaml.MappingNode):
            total = sum(size(key) + size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            total = sum(size(item) for item in node.value)
        else:
            total = len(node.value)
        sizes[id(node)] = total + 1
        return total + 1

    return size(root)
