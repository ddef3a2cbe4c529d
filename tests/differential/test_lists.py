"""Lists: selectors, pages, versions."""

import base64
import json
from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Step, delete, get, patch, post
from tests.support.manifests import CONFIG_MAPS, NAMESPACES, PODS, SERVICES, config_map, pod
from tests.support.parameters import marked

THREE = (
    post(CONFIG_MAPS, config_map("a", labels={"app": "web", "tier": "1"}), save="first", shown=False),
    post(CONFIG_MAPS, config_map("b", labels={"app": "web", "tier": "2"}), shown=False),
    post(CONFIG_MAPS, config_map("c", labels={"app": "db"}), save="last", shown=False),
    post(CONFIG_MAPS, config_map("d"), save="last", shown=False),
)


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def names(query: str) -> Step:
    """List the names of the objects that a selector matches."""
    fields = (
        "items.0.metadata.name",
        "items.1.metadata.name",
        "items.2.metadata.name",
        "items.3.metadata.name",
    )
    return get(f"{CONFIG_MAPS}?{query}", only=fields)


def token(**parts: object) -> str:
    """A continue token made by hand."""
    text = json.dumps(parts, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


V1 = "meta.k8s.io/v1"

CASES: dict[str, list[Step]] = {
    "objects changed between pages: later pages do not show it": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=1", save="page"),
        delete(f"{CONFIG_MAPS}/b", shown=False),
        patch(f"{CONFIG_MAPS}/c", {"data": {"key": "new"}}, shown=False),
        post(CONFIG_MAPS, config_map("bb"), shown=False),
        get(f"{CONFIG_MAPS}?limit=1&continue=$page.metadata.continue", save="page"),
        delete(f"{CONFIG_MAPS}/d", shown=False),
        get(f"{CONFIG_MAPS}?limit=1&continue=$page.metadata.continue", save="page"),
        get(f"{CONFIG_MAPS}?limit=5&continue=$page.metadata.continue", save="page"),
        get(CONFIG_MAPS),
    ],
    "labels changed between pages: later pages do not show it": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=1&labelSelector=app%3Dweb", save="page"),
        patch(f"{CONFIG_MAPS}/b", {"metadata": {"labels": {"app": "db"}}}, shown=False),
        patch(f"{CONFIG_MAPS}/c", {"metadata": {"labels": {"app": "web"}}}, shown=False),
        get(f"{CONFIG_MAPS}?limit=1&labelSelector=app%3Dweb&continue=$page.metadata.continue"),
    ],
    "pages as tables: as kube-apiserver": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=3", accept=TABLE, save="page"),
        post(CONFIG_MAPS, config_map("e"), shown=False),
        get(f"{CONFIG_MAPS}?limit=3&continue=$page.metadata.continue", accept=TABLE),
    ],
    "pages from a resourceVersion: as kube-apiserver": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=2&resourceVersion=$last.metadata.resourceVersion", save="page"),
        get(f"{CONFIG_MAPS}?limit=2&continue=$page.metadata.continue"),
    ],
    "first page from an old resourceVersion: as kube-apiserver": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=2&resourceVersion=$first.metadata.resourceVersion"),
        get(f"{CONFIG_MAPS}?limit=2&resourceVersion=$first.metadata.resourceVersion&labelSelector=app"),
        get(
            f"{CONFIG_MAPS}?limit=2&resourceVersion=$first.metadata.resourceVersion"
            "&resourceVersionMatch=NotOlderThan"
        ),
    ],
    "pages at exactly a resourceVersion: objects created later are not shown": [
        *THREE,
        get(
            f"{CONFIG_MAPS}?limit=1&resourceVersion=$last.metadata.resourceVersion&resourceVersionMatch=Exact",
            save="page",
        ),
        post(CONFIG_MAPS, config_map("aa"), shown=False),
        get(f"{CONFIG_MAPS}?limit=2&continue=$page.metadata.continue"),
    ],
    "continue token with resourceVersionMatch: rejected, with resourceVersion 0: accepted": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=2", save="page", shown=False),
        get(f"{CONFIG_MAPS}?limit=2&continue=$page.metadata.continue&resourceVersionMatch=Exact"),
        get(f"{CONFIG_MAPS}?limit=2&continue=$page.metadata.continue&resourceVersionMatch=NotOlderThan"),
        get(f"{CONFIG_MAPS}?limit=2&continue=$page.metadata.continue&resourceVersion=0"),
    ],
    "invalid continue token: rejected": [
        get(f"{CONFIG_MAPS}?limit=2&continue=%21%21"),
        get(f"{CONFIG_MAPS}?limit=2&continue=nonsense"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v='v2', rv=1, start='a')}"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v=V1, rv=0, start='a')}"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v=V1, start='a')}"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v=V1, rv=1, start='')}"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v=V1, rv=1)}"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v=V1, rv=1, start='../../x')}"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v=V1, rv='x', start='a')}"),
        get(f"{CONFIG_MAPS}?limit=2&continue={token(rv=1)}"),
    ],
    "continue token of a future resourceVersion: rejected": [
        get(f"{CONFIG_MAPS}?limit=2&continue={token(v=V1, rv=999999999, start='a')}"),
    ],
    "watch with a continue token: token ignored": [
        *THREE,
        get(
            f"{CONFIG_MAPS}?watch=1&continue=x&resourceVersion=$last.metadata.resourceVersion&timeoutSeconds=1"
        ),
    ],
    "every resourceVersion with every resourceVersionMatch: as kube-apiserver": [
        *THREE,
        *(
            # Both servers may name a later version: others write to them, too.
            get(
                f"{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch={match}{limit}",
                hide=("items", "metadata.resourceVersion"),
            )
            for version in ("", "0", "$last.metadata.resourceVersion")
            for match in ("", "Exact", "NotOlderThan")
            for limit in ("", "&limit=2")
        ),
    ],
    "resourceVersion of the future: rejected": [
        get(f"{CONFIG_MAPS}?resourceVersion=999999999", hide=("details.causes",)),
        get(
            f"{CONFIG_MAPS}?resourceVersion=999999999&resourceVersionMatch=Exact",
            hide=("details.causes",),
        ),
        get(f"{CONFIG_MAPS}/a?resourceVersion=999999999", hide=("details.causes",)),
    ],
    "invalid resourceVersion in a list or get: rejected": [
        get(f"{CONFIG_MAPS}?resourceVersion=x&resourceVersionMatch=Exact"),
        get(f"{CONFIG_MAPS}?resourceVersion=-1"),
        get(f"{CONFIG_MAPS}?resourceVersion=1.5"),
        get(f"{CONFIG_MAPS}?resourceVersion=99999999999999999999"),
        get(f"{CONFIG_MAPS}/a?resourceVersion=x"),
    ],
    "list: ordered by name": [*THREE, get(CONFIG_MAPS)],
    "empty list: items is an empty list": [get(CONFIG_MAPS), get(PODS)],
    "list over all namespaces with a field selector: matching objects": [
        *THREE,
        get(
            "/api/v1/configmaps?fieldSelector=metadata.namespace%3D$ns,metadata.name%3Da",
        ),
    ],
    "label selector with = and !=: matching objects": [
        *THREE,
        names("labelSelector=app%3Dweb"),
        names("labelSelector=app%3D%3Ddb"),
        names("labelSelector=app!%3Dweb"),
        names("labelSelector=app%3Dweb,tier%3D2"),
    ],
    "label selector with sets, existence and comparison: matching objects": [
        *THREE,
        names("labelSelector=app%20in%20(web,%20db)"),
        names("labelSelector=app%20notin%20(web)"),
        names("labelSelector=app"),
        names("labelSelector=!app"),
        names("labelSelector=tier%3E1"),
        names("labelSelector=tier%3C2"),
    ],
    "invalid label selector: rejected": [
        get(f"{CONFIG_MAPS}?labelSelector=a%20in"),
        get(f"{CONFIG_MAPS}?labelSelector=a%3D%3D%3Db"),
        get(f"{CONFIG_MAPS}?labelSelector=-a%3Db"),
        get(f"{CONFIG_MAPS}?labelSelector=a%3Eb"),
        get(f"{CONFIG_MAPS}?labelSelector=a%3D" + "x" * 64),
    ],
    "field selector with metadata.name: matching objects": [
        *THREE,
        names("fieldSelector=metadata.name%3Db"),
        names("fieldSelector=metadata.name!%3Db"),
        names("fieldSelector=metadata.name%3Db,metadata.namespace%3D$ns"),
    ],
    "field selector with an unsupported field: rejected": [
        get(f"{CONFIG_MAPS}?fieldSelector=data.key%3Dx"),
        get(f"{PODS}?fieldSelector=spec.nonsense%3Dx"),
        get(f"{SERVICES}?fieldSelector=spec.ports%3Dx"),
        get(f"{CONFIG_MAPS}?fieldSelector=metadata.name"),
    ],
    "field selectors of pods: matching pods": [
        post(PODS, pod("a", nodeName="n1"), shown=False),
        post(PODS, pod("b"), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running", "podIP": "10.0.0.1"}}, shown=False),
        get(
            f"{PODS}?fieldSelector=spec.nodeName%3Dn1",
            only=("items.0.metadata.name", "items.1.metadata.name"),
        ),
        get(
            f"{PODS}?fieldSelector=spec.nodeName%3D", only=("items.0.metadata.name", "items.1.metadata.name")
        ),
        get(f"{PODS}?fieldSelector=status.phase%3DPending", only=("items.0.metadata.name",)),
        get(f"{PODS}?fieldSelector=status.podIP%3D10.0.0.1", only=("items.0.metadata.name",)),
        get(f"{PODS}?fieldSelector=spec.restartPolicy%3DAlways", only=("items.1.metadata.name",)),
        get(f"{PODS}?fieldSelector=spec.schedulerName%3Dother", only=("items",)),
    ],
    "field selector with status.phase of namespaces: matching namespaces": [
        get(f"{NAMESPACES}?fieldSelector=status.phase%3DTerminating,metadata.name%3D$ns"),
        get(f"{NAMESPACES}?fieldSelector=status.phase%3DActive,metadata.name%3D$ns"),
    ],
    "list with a limit: pages with continue tokens": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=2", save="page"),
        get(f"{CONFIG_MAPS}?limit=2&continue=$page.metadata.continue"),
        get(f"{CONFIG_MAPS}?limit=3", save="page", hide=("items",)),
        get(f"{CONFIG_MAPS}?limit=3&continue=$page.metadata.continue", hide=("items",)),
        get(f"{CONFIG_MAPS}?limit=4", hide=("items",)),
    ],
    "page with a selector: no remainingItemCount": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=1&labelSelector=app", hide=("items",)),
    ],
    "object created between pages: not in later pages": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=2", save="page", shown=False),
        post(CONFIG_MAPS, config_map("ca"), shown=False),
        get(f"{CONFIG_MAPS}?limit=5&continue=$page.metadata.continue"),
    ],
    "continue token with a resourceVersion: rejected": [
        *THREE,
        get(f"{CONFIG_MAPS}?limit=2", save="page", shown=False),
        get(
            f"{CONFIG_MAPS}?limit=2&continue=$page.metadata.continue&resourceVersion=$first.metadata.resourceVersion"
        ),
    ],
    "limit that is not a number: rejected, negative: accepted": [
        get(f"{CONFIG_MAPS}?limit=x"),
        get(f"{CONFIG_MAPS}?limit=-1"),
    ],
    "list with resourceVersion 0: accepted": [
        *THREE,
        get(f"{CONFIG_MAPS}?resourceVersion=0", only=("kind",)),
    ],
    "list not older than a resourceVersion: objects of at least that version": [
        *THREE,
        get(f"{CONFIG_MAPS}?resourceVersion=$last.metadata.resourceVersion", only=("items.3.metadata.name",)),
        get(
            f"{CONFIG_MAPS}?resourceVersion=$last.metadata.resourceVersion&resourceVersionMatch=NotOlderThan",
            only=("items.3.metadata.name",),
        ),
    ],
    "list at exactly a resourceVersion: objects of that version": [
        *THREE,
        get(
            f"{CONFIG_MAPS}?resourceVersion=$first.metadata.resourceVersion&resourceVersionMatch=Exact",
            hide=("items.*.metadata.managedFields",),
        ),
    ],
    "invalid resourceVersionMatch: rejected": [
        get(f"{CONFIG_MAPS}?resourceVersion=1&resourceVersionMatch=Nearly"),
        get(f"{CONFIG_MAPS}?resourceVersionMatch=Exact"),
        get(f"{CONFIG_MAPS}?resourceVersion=0&resourceVersionMatch=Exact"),
    ],
    "resourceVersion that is not a number: rejected": [get(f"{CONFIG_MAPS}?resourceVersion=abc")],
    "get with a resourceVersion: accepted": [
        *THREE,
        get(f"{CONFIG_MAPS}/a?resourceVersion=0"),
        get(f"{CONFIG_MAPS}/a?resourceVersion=$last.metadata.resourceVersion"),
    ],
    "list with sendInitialEvents: rejected": [
        get(f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
    ],
}


WAITING = {"resourceVersion of the future: rejected", "continue token of a future resourceVersion: rejected"}
"""kube-apiserver answers these after several seconds each."""


@pytest.mark.parametrize("steps", marked(CASES, CASES.keys() - WAITING, pytest.mark.long))
def test_lists(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
