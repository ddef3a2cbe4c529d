"""Discovery documents: aggregated (v2), and one per group version for older clients."""

from collections.abc import Iterable

import msgspec

from argosy.local.apiserver.http import Request, Response, reply
from argosy.local.apiserver.registry import Registry, Served
from argosy.local.schema.model import Json

_AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# The groups in the order of Kubernetes; custom groups follow by name.
_ORDER = (
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
)


def discovery(request: Request, registry: Registry, address: str) -> Response | None:
    """Return the document at a discovery path; None for other paths."""
    parts = request.path.strip("/").split("/")
    if parts == ["api"] or parts == ["apis"]:
        if _accepts_aggregated(request):
            return _aggregated_discovery(registry, legacy=parts == ["api"])
        return reply(_api_versions(address) if parts == ["api"] else _group_list(registry))
    if parts[0] == "api" and len(parts) == 2:
        return _resources(registry, "", parts[1])
    if parts[0] == "apis" and len(parts) == 2:
        versions = _groups(registry).get(parts[1])
        if not versions or not parts[1]:
            return None
        return reply({"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], list(versions))})
    if parts[0] == "apis" and len(parts) == 3:
        return _resources(registry, parts[1], parts[2])
    return None


def _accepts_aggregated(request: Request) -> bool:
    """Whether a client prefers the aggregated document; older ones know only other versions of it."""
    aggregated = {"application/json", "g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"}
    for clause in request.header(b"accept").split(","):
        parameters = {part.strip() for part in clause.split(";")}
        if aggregated <= parameters:
            return True
        if parameters in ({"application/json"}, {"*/*"}):
            return False
    return False


def _groups(registry: Registry) -> dict[str, dict[str, list[Served]]]:
    """Return the kinds by group and version, the preferred version first."""
    groups: dict[str, dict[str, list[Served]]] = {}
    for served in registry.all():
        groups.setdefault(served.group, {}).setdefault(served.version, []).append(served)
    rank = {group: index for index, group in enumerate(_ORDER)}
    ordered = sorted(groups, key=lambda group: (rank.get(group, len(rank)), group))
    return {name: {v: groups[name][v] for v in sorted(groups[name], key=version_rank)} for name in ordered}


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key that orders v2, v1, v1beta1, v1alpha1 and then everything else."""
    import re

    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), "")


def _aggregated_discovery(registry: Registry, *, legacy: bool) -> Response:
    items: list[Json] = []
    for group, versions in _groups(registry).items():
        if (group == "") != legacy:
            continue
        shown: list[Json] = []
        for name, kinds in versions.items():
            resources = [_aggregated_resource(served) for served in sorted(kinds, key=lambda s: s.plural)]
            shown.append({"version": name, "resources": resources, "freshness": "Current"})
        metadata: Json = {"name": group} if group else {}
        items.append({"metadata": {**metadata, "creationTimestamp": None}, "versions": shown})
    document: Json = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }
    return Response(msgspec.json.encode(document) + b"\n", content_type=_AGGREGATED)


def _aggregated_resource(served: Served) -> Json:
    described: Json = {
        "resource": served.plural,
        "responseKind": _response_kind(served, served.group, served.version, served.kind),
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "singularResource": served.singular,
        "verbs": list(served.verbs),
        **_short_names_and_categories(served),
    }
    if served.subresources:
        described["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": _response_kind(served, sub.group, sub.version, sub.kind),
                "verbs": list(sub.verbs),
            }
            for sub in served.subresources
        ]
    return described


def _short_names_and_categories(served: Served) -> Json:
    lists = {"shortNames": served.short_names, "categories": served.categories}
    return {name: list(values) for name, values in lists.items() if values}


def _response_kind(served: Served, group: str, version: str, kind: str) -> Json:
    """Return the kind of a resource; built-in kinds omit a group version equal to that of the resource."""
    if served.builtin is not None and (group, version) == (served.group, served.version):
        return {"group": "", "version": "", "kind": kind}
    return {"group": group, "version": version, "kind": kind}


def _api_versions(address: str) -> Json:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _group_list(registry: Registry) -> Json:
    groups = [_group(group, list(versions)) for group, versions in _groups(registry).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(group: str, versions: list[str]) -> Json:
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def _resources(registry: Registry, group: str, version: str) -> Response | None:
    kinds = [served for served in registry.all() if served.group == group and served.version == version]
    if not kinds:
        return None
    resources = [
        entry for served in sorted(kinds, key=lambda s: s.plural) for entry in _resource_entries(served)
    ]
    group_version = f"{group}/{version}" if group else version
    return reply(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}
    )


def _resource_entries(served: Served) -> Iterable[Json]:
    entry: Json = {
        "name": served.plural,
        "singularName": served.singular,
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": list(served.verbs),
        **_short_names_and_categories(served),
    }
    yield entry
    for sub in served.subresources:
        described: Json = {
            "name": f"{served.plural}/{sub.name}",
            "singularName": "",
            "namespaced": served.namespaced,
            "kind": sub.kind,
            "verbs": list(sub.verbs),
        }
        if (sub.group, sub.version) != (served.group, served.version):
            described |= {"group": sub.group, "version": sub.version}
        yield described
