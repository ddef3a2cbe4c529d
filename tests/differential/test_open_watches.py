"""Watches that are open while others write get the same events in the same order."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import JSON_PATCH, Step, delete, open_watch, patch, post, put, read_watch
from tests.support.manifests import CONFIG_MAPS, PODS, config_map, pod

OBJECT = f"{CONFIG_MAPS}/a"
RUNNING = f"{PODS}/a"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
MADE = post(CONFIG_MAPS, config_map("first"), save="made", shown=False)
SINCE = "resourceVersion=$made.metadata.resourceVersion"
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
BOUND = (
    post(PODS, pod(nodeName="n1"), save="made", shown=False),
    patch(f"{RUNNING}/status", {"status": {"phase": "Running"}}, shown=False),
)


def labelled(name: str, value: str | None) -> Step:
    return patch(f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"x": value}}}, shown=False)


WRITES = (
    post(CONFIG_MAPS, config_map(labels={"x": "1"}), shown=False),
    post(CONFIG_MAPS, config_map("b"), shown=False),
    labelled("b", "1"),
    labelled("a", "2"),
    labelled("a", "1"),
    patch(OBJECT, {"data": {"key": "more"}}, shown=False),
    labelled("b", None),
    delete(f"{CONFIG_MAPS}/b", shown=False),
    delete(OBJECT, shown=False),
)

CASES: dict[str, list[Step]] = {
    "watch of a collection: all events": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}"),
        *WRITES,
        read_watch("all", 9),
    ],
    "watch with a label selector: ADDED and DELETED when objects start and stop to match": [
        MADE,
        open_watch("one", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1"),
        open_watch("two", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D2"),
        open_watch("none", f"{CONFIG_MAPS}?{SINCE}&labelSelector=!x"),
        *WRITES,
        read_watch("one", 7),
        read_watch("two", 2),
        read_watch("none", 4),
    ],
    "watch with a field selector: ADDED and DELETED when objects start and stop to match": [
        post(PODS, pod("z"), save="made", shown=False),
        open_watch("running", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning"),
        open_watch("here", f"{PODS}?{SINCE}&fieldSelector=spec.nodeName%3Dn1"),
        open_watch("waiting", f"{PODS}?{SINCE}&fieldSelector=spec.nodeName%3D,status.phase%3DPending"),
        post(PODS, pod(), shown=False),
        post(
            f"{RUNNING}/binding",
            {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "n1"}},
            shown=False,
        ),
        patch(f"{RUNNING}/status", {"status": {"phase": "Running"}}, shown=False),
        patch(f"{RUNNING}/status", {"status": {"phase": "Failed"}}, shown=False),
        delete(RUNNING, shown=False),
        read_watch("running", 2),
        read_watch("here", 4),
        read_watch("waiting", 2),
    ],
    "running pod deleted with gracePeriodSeconds=0: MODIFIED and DELETED": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}"),
        read_watch("pods", 1, shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        read_watch("pods", 2),
    ],
    "running pod deleted with grace period 0 in the body: MODIFIED and DELETED": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning"),
        read_watch("pods", 1, shown=False),
        delete(RUNNING, {"gracePeriodSeconds": 0}, shown=False),
        read_watch("pods", 2),
    ],
    "pod without a node deleted: MODIFIED and DELETED": [
        post(PODS, pod(), save="made", shown=False),
        open_watch("pods", f"{PODS}?{SINCE}"),
        delete(RUNNING, shown=False),
        read_watch("pods", 2),
    ],
    "pod with a finalizer deleted: events until the finalizer is removed": [
        post(
            PODS, pod(metadata={"finalizers": ["example.com/hold"]}, nodeName="n1"), save="made", shown=False
        ),
        open_watch("pods", f"{PODS}?{SINCE}"),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        patch(RUNNING, {"metadata": {"finalizers": None}}, shown=False),
        read_watch("pods", 2),
    ],
    "running pod deleted with shorter and shorter grace periods: an event for each": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}"),
        read_watch("pods", 1, shown=False),
        delete(RUNNING, shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=5", shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        read_watch("pods", 4),
    ],
    "initial events: existing objects, a bookmark, then changes": [
        MADE,
        post(CONFIG_MAPS, config_map("second"), shown=False),
        open_watch("all", f"{CONFIG_MAPS}?{INITIAL}"),
        read_watch("all", 3),
        *WRITES,
        read_watch("all", 9),
    ],
    "initial events from a resourceVersion with a selector: only matching objects": [
        MADE,
        labelled("first", "1"),
        open_watch("one", f"{CONFIG_MAPS}?{INITIAL}&{SINCE}&labelSelector=x%3D1"),
        read_watch("one", 2),
        *WRITES,
        read_watch("one", 7),
    ],
    "initial events without matching objects: only a bookmark": [
        open_watch("none", f"{CONFIG_MAPS}?{INITIAL}&labelSelector=x%3D9"),
        read_watch("none", 1),
    ],
    "sendInitialEvents without allowWatchBookmarks or with an unknown value: accepted": [
        open_watch("one", f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        open_watch("two", f"{CONFIG_MAPS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        open_watch("three", f"{CONFIG_MAPS}?sendInitialEvents=perhaps&resourceVersionMatch=NotOlderThan"),
    ],
    "initial events as PartialObjectMetadata: as kube-apiserver": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{INITIAL}", accept=PARTIAL),
        read_watch("all", 2),
        *WRITES[:2],
        read_watch("all", 2),
    ],
    "initial events as tables: as kube-apiserver": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{INITIAL}", accept=TABLE),
        read_watch("all", 2),
        *WRITES[:2],
        read_watch("all", 2),
    ],
    "initial events without objects as tables: as kube-apiserver": [
        open_watch("none", f"{CONFIG_MAPS}?{INITIAL}", accept=TABLE),
        read_watch("none", 1),
        *WRITES[:1],
        read_watch("none", 1),
    ],
    "initial events of pods as tables: as kube-apiserver": [
        open_watch("none", f"{PODS}?{INITIAL}", accept=TABLE),
        read_watch("none", 1),
        post(PODS, pod(), shown=False),
        read_watch("none", 1),
    ],
    "watch as tables: a table for each event": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}", accept=TABLE),
        *WRITES,
        read_watch("all", 9),
    ],
    "watch of pods with a field selector as tables: as kube-apiserver": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning", accept=TABLE),
        patch(f"{RUNNING}/status", {"status": {"phase": "Failed", "reason": "Evicted"}}, shown=False),
        delete(RUNNING, shown=False),
        read_watch("pods", 2),
    ],
    "watch as tables with includeObject Object and None: as kube-apiserver": [
        MADE,
        open_watch("whole", f"{CONFIG_MAPS}?{SINCE}&includeObject=Object", accept=TABLE),
        open_watch("none", f"{CONFIG_MAPS}?{SINCE}&includeObject=None", accept=TABLE),
        *WRITES[:3],
        read_watch("whole", 3),
        read_watch("none", 3),
    ],
    "watch with a label selector as PartialObjectMetadata: as kube-apiserver": [
        MADE,
        open_watch("one", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1", accept=PARTIAL),
        *WRITES,
        read_watch("one", 7),
    ],
    "watch with allowWatchBookmarks: the same events": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}&allowWatchBookmarks=true"),
        *WRITES,
        read_watch("all", 9),
    ],
    "update, update without changes, patch: two events": [
        post(CONFIG_MAPS, config_map(), save="made", shown=False),
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}"),
        put(OBJECT, config_map(data={"key": "other"}), shown=False),
        put(OBJECT, config_map(data={"key": "other"}), shown=False),
        patch(OBJECT, [{"op": "add", "path": "/data/more", "value": "1"}], JSON_PATCH, shown=False),
        read_watch("all", 2),
    ],
    "object deleted and created again: DELETED and ADDED": [
        post(CONFIG_MAPS, config_map(), save="made", shown=False),
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}&fieldSelector=metadata.name%3Da"),
        delete(OBJECT, shown=False),
        post(CONFIG_MAPS, config_map(), shown=False),
        read_watch("all", 2),
    ],
    "collection deleted: an event for each object": [
        MADE,
        post(CONFIG_MAPS, config_map(labels={"x": "1"}), shown=False),
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1"),
        read_watch("all", 1, shown=False),
        delete(f"{CONFIG_MAPS}?labelSelector=x", shown=False),
        read_watch("all", 1),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_live(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
