"""Makes the template of a pod that was checkpointed, from which a pod can be restored."""

from collections.abc import Collection, Mapping

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def pod_template(metadata: Mapping[str, object], spec: Mapping[str, object]) -> dict[str, object]:
    """Return the template of a pod, without what the cluster has added for its place and identity."""
    kept = {name: value for name, value in spec.items() if name not in ("nodeName", "ephemeralContainers")}
    added = {str(item.get("name")) for item in _items(spec, "volumes") if _is_added_volume(item)}
    kept["volumes"] = [item for item in _items(spec, "volumes") if item.get("name") not in added]
    for part in ("containers", "initContainers"):
        kept[part] = [_without_mounts(item, added) for item in _items(spec, part)]
    listed = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    annotations = listed.get("annotations")
    if isinstance(annotations, dict):
        listed["annotations"] = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    return {"metadata": listed, "spec": {name: value for name, value in kept.items() if value != []}}


def _items(spec: Mapping[str, object], name: str) -> list[dict[str, object]]:
    items = spec.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _is_added_volume(volume: Mapping[str, object]) -> bool:
    return str(volume.get("name", "")).startswith("kube-api-access-")


def _without_mounts(container: Mapping[str, object], added: Collection[str]) -> dict[str, object]:
    mounts = [item for item in _items(container, "volumeMounts") if item.get("name") not in added]
    rest = {name: value for name, value in container.items() if name != "volumeMounts"}
    return {**rest, "volumeMounts": mounts} if mounts else rest
