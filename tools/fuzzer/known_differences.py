"""Removes from responses what our server leaves out on purpose."""

from tests.support.field_paths import Json


def without_known_differences(value: Json) -> Json:
    """A copy of a response with short bookmarks and with the finalizers of namespaces in a fixed order."""
    if isinstance(value, dict):
        if value.get("type") == "BOOKMARK":
            value = {**value, "object": _bookmark(value.get("object"))}
        normal = {name: without_known_differences(item) for name, item in value.items()}
        if normal.get("kind") == "Status" and "code" in normal:
            normal["details"] = _without_causes_of_names(normal.get("details"))
        if normal.get("kind") == "Namespace":
            _order_finalizers(normal)
        return normal
    if isinstance(value, list):
        return [without_known_differences(item) for item in value]
    return value


def _without_causes_of_names(details: Json) -> Json:
    """Kubernetes reports a Service without a valid name as an error of its address."""
    if not isinstance(details, dict) or details.get("kind") != "Service":
        return details
    name = str(details.get("name", ""))
    invalid = name in ("", ".", "..") or not {"/", "%"}.isdisjoint(name)
    return {**details, "causes": []} if invalid else details


def _order_finalizers(namespace: dict[str, Json]) -> None:
    """Kubernetes takes the finalizers of a terminating namespace from a Go map, in any order."""
    metadata = namespace.get("metadata")
    if isinstance(metadata, dict) and isinstance(finalizers := metadata.get("finalizers"), list):
        metadata["finalizers"] = sorted(finalizers, key=str)


def _bookmark(bookmark: Json) -> Json:
    """A bookmark without the empty fields that a Go struct leaves in it."""
    if not isinstance(bookmark, dict):
        return bookmark
    kept = {name: bookmark[name] for name in ("kind", "apiVersion", "metadata", "rows") if name in bookmark}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        kept["metadata"] = {name: metadata[name] for name in metadata if name != "creationTimestamp"}
    return kept
