"""Takes out of answers what ours leaves out on purpose, and `docs/users/local-control-plane.md` names.

Those are prints of Go's own types inside messages, the empty fields of those types in bookmarks, how often
the same error is told, and in which order several of what is applied are. What stands around is compared.
"""

import json
import re

from tests.support.field_paths import Json

_PRINTS = (
    # A difference between two structs, below the list of the fields of a pod that may be changed.
    (re.compile(r"(if it was previously negative\))\n.*", re.DOTALL), r"\1"),
    # An address that was about to be given.
    (re.compile(r'IPAddress\.networking\.k8s\.io "[\d.]+"'), "IPAddress.networking.k8s.io <address>"),
    # An object or a patch as a whole, as text or as JSON.
    (re.compile(r'Invalid value: "(?:map\[|\{|\[).*[]}]": ', re.DOTALL), "Invalid value: <print>: "),
    (re.compile(r"Invalid value: (?:\{|\[).*[]}]: ", re.DOTALL), "Invalid value: <print>: "),
)
_TYPE_ERRORS = re.compile(r"errors:\n((?:  \..*(?:\n|$))+)")
"""What has other types than those of its schema, a line for each, in the order of Go's maps."""


def settled(value: Json) -> Json:
    """A copy of an answer without what ours leaves out."""
    if isinstance(value, dict):
        if value.get("type") == "BOOKMARK":
            value = {**value, "object": _marked(value.get("object"))}
        normal = {name: settled(item) for name, item in value.items()}
        if normal.get("kind") == "Namespace":
            _order_finalizers(normal)
        return _told_once(normal) if normal.get("kind") == "Status" else normal
    if isinstance(value, list):
        return [settled(item) for item in value]
    if isinstance(value, str):
        for pattern, replacement in _PRINTS:
            value = pattern.sub(replacement, value)
        value = _TYPE_ERRORS.sub(_in_order, value)
    return value


def _in_order(errors: re.Match[str]) -> str:
    lines: list[str] = sorted(errors[1].splitlines())
    undeclared: list[str] = [line.strip() for line in lines if line.endswith("field not declared in schema")]
    if undeclared:
        # Kubernetes looks no further then, at what comes after it in the order of Go's maps.
        return min(undeclared, key=len)
    return "errors:\n" + "\n".join(lines)


def _order_finalizers(namespace: dict[str, Json]) -> None:
    """Those of a namespace that goes come from one of Go's maps."""
    metadata = namespace.get("metadata")
    if isinstance(metadata, dict) and isinstance(finalizers := metadata.get("finalizers"), list):
        metadata["finalizers"] = sorted(finalizers, key=str)


def _marked(bookmark: Json) -> Json:
    if not isinstance(bookmark, dict):
        return bookmark
    kept = {name: bookmark[name] for name in ("kind", "apiVersion", "metadata", "rows") if name in bookmark}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        kept["metadata"] = {name: metadata[name] for name in metadata if name != "creationTimestamp"}
    return kept


def _told_once(status: dict[str, Json]) -> Json:
    """Kubernetes looks at some things twice, and tells an error of theirs each time."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(details, dict) or not isinstance(causes, list):
        return status
    once = {json.dumps(cause, sort_keys=True): cause for cause in causes}
    message = str(status.get("message")).partition(": [")[0] if len(causes) > 1 else status.get("message")
    if len(causes) > 1 or len(once) == 1:
        message = str(message).partition(" is invalid")[0]
    return {**status, "message": message, "details": {**details, "causes": list(once.values())}}
