"""Makes the template of a pod that was checkpointed, from which a pod can be restored."""

from collections.abc import Collection, Mapping

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def pod_template(metadata: Mapping[str, object], spec: Mapping[str, object]) -> dict[str, object]:
    """Return the pod's labels, annotations and spec, without what belongs to this one pod.

    That is its node, its ephemeral containers, kubectl's annotation, and the volume with the token of its
    ServiceAccount, which the API server adds to the new pod again.
    """
    kept = {name: value for name, value in spec.items() if name not in ("nodeName", "ephemeralContainers")}
    added = {str(item.get("name")) for item in _items(spec, "volumes") if _is_added_volume(item)}
    kept["volumes"] = [item for item in _items(spec, "volumes") if item.get("name") not in added]
    for field in ("containers", "initContainers"):
        kept[field] = [_without_mounts(item, added) for item in _items(spec, field)]
    copied = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    annotations = copied.get("annotations")
    if isinstance(annotations, dict):
        copied["annotations"] = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    return {"metadata": copied, "spec": {name: value for name, value in kept.items() if value != []}}


def _items(spec: Mapping[str, object], name: str) -> list[dict[str, object]]:
    items = spec.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _is_added_volume(volume: Mapping[str, object]) -> bool:
    """Return True for the volume that the admission plugin ServiceAccount adds."""
    return str(volume.get("name", "")).startswith("kube-api-access-")


def _without_mounts(container: Mapping[str, object], added: Collection[str]) -> dict[str, object]:
    mounts = [item for item in _items(container, "volumeMounts") if item.get("name") not in added]
    fields = {name: value for name, value in container.items() if name != "volumeMounts"}
    return {**fields, "volumeMounts": mounts} if mounts else fields
