"""Watches that are open while others write: each tells the same story, in the same order."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import JSON_PATCH, Step, delete, open_watch, patch, post, put, read_watch
from tests.support.manifests import CONFIG_MAPS, PODS, config_map, pod

ONE = f"{CONFIG_MAPS}/a"
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
    patch(ONE, {"data": {"key": "more"}}, shown=False),
    labelled("b", None),
    delete(f"{CONFIG_MAPS}/b", shown=False),
    delete(ONE, shown=False),
)

CASES: dict[str, list[Step]] = {
    "all is told": [MADE, open_watch("all", f"{CONFIG_MAPS}?{SINCE}"), *WRITES, read_watch("all", 9)],
    "who watches by label is told of those that come and go": [
        MADE,
        open_watch("one", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1"),
        open_watch("two", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D2"),
        open_watch("none", f"{CONFIG_MAPS}?{SINCE}&labelSelector=!x"),
        *WRITES,
        read_watch("one", 7),
        read_watch("two", 2),
        read_watch("none", 4),
    ],
    "who watches by field is told of those that come and go": [
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
    "a pod deleted at once is told as changed and gone": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}"),
        read_watch("pods", 1, shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        read_watch("pods", 2),
    ],
    "a pod deleted at once by its body is told the same": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning"),
        read_watch("pods", 1, shown=False),
        delete(RUNNING, {"gracePeriodSeconds": 0}, shown=False),
        read_watch("pods", 2),
    ],
    "a pod that runs nowhere is told as changed and gone": [
        post(PODS, pod(), save="made", shown=False),
        open_watch("pods", f"{PODS}?{SINCE}"),
        delete(RUNNING, shown=False),
        read_watch("pods", 2),
    ],
    "a pod with a finalizer goes in three steps": [
        post(
            PODS, pod(metadata={"finalizers": ["example.com/hold"]}, nodeName="n1"), save="made", shown=False
        ),
        open_watch("pods", f"{PODS}?{SINCE}"),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        patch(RUNNING, {"metadata": {"finalizers": None}}, shown=False),
        read_watch("pods", 2),
    ],
    "a pod's grace, shortened and ended": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}"),
        read_watch("pods", 1, shown=False),
        delete(RUNNING, shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=5", shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        read_watch("pods", 4),
    ],
    "what is there, then a bookmark, then what comes": [
        MADE,
        post(CONFIG_MAPS, config_map("second"), shown=False),
        open_watch("all", f"{CONFIG_MAPS}?{INITIAL}"),
        read_watch("all", 3),
        *WRITES,
        read_watch("all", 9),
    ],
    "initial events from a version, with a selector": [
        MADE,
        labelled("first", "1"),
        open_watch("one", f"{CONFIG_MAPS}?{INITIAL}&{SINCE}&labelSelector=x%3D1"),
        read_watch("one", 2),
        *WRITES,
        read_watch("one", 7),
    ],
    "initial events of nothing are a bookmark": [
        open_watch("none", f"{CONFIG_MAPS}?{INITIAL}&labelSelector=x%3D9"),
        read_watch("none", 1),
    ],
    "initial events without bookmarks are refused": [
        open_watch("one", f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        open_watch("two", f"{CONFIG_MAPS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        open_watch("three", f"{CONFIG_MAPS}?sendInitialEvents=perhaps&resourceVersionMatch=NotOlderThan"),
    ],
    "initial events as metadata": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{INITIAL}", accept=PARTIAL),
        read_watch("all", 2),
        *WRITES[:2],
        read_watch("all", 2),
    ],
    "initial events as tables": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{INITIAL}", accept=TABLE),
        read_watch("all", 2),
        *WRITES[:2],
        read_watch("all", 2),
    ],
    "initial events of nothing as tables": [
        open_watch("none", f"{CONFIG_MAPS}?{INITIAL}", accept=TABLE),
        read_watch("none", 1),
        *WRITES[:1],
        read_watch("none", 1),
    ],
    "initial events of pods as tables": [
        open_watch("none", f"{PODS}?{INITIAL}", accept=TABLE),
        read_watch("none", 1),
        post(PODS, pod(), shown=False),
        read_watch("none", 1),
    ],
    "tables of what comes": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}", accept=TABLE),
        *WRITES,
        read_watch("all", 9),
    ],
    "tables of pods by phase": [
        *BOUND,
        open_watch("pods", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning", accept=TABLE),
        patch(f"{RUNNING}/status", {"status": {"phase": "Failed", "reason": "Evicted"}}, shown=False),
        delete(RUNNING, shown=False),
        read_watch("pods", 2),
    ],
    "tables with whole objects, and with none": [
        MADE,
        open_watch("whole", f"{CONFIG_MAPS}?{SINCE}&includeObject=Object", accept=TABLE),
        open_watch("none", f"{CONFIG_MAPS}?{SINCE}&includeObject=None", accept=TABLE),
        *WRITES[:3],
        read_watch("whole", 3),
        read_watch("none", 3),
    ],
    "metadata of those that come and go": [
        MADE,
        open_watch("one", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1", accept=PARTIAL),
        *WRITES,
        read_watch("one", 7),
    ],
    "a watch that asks for bookmarks is told of changes the same": [
        MADE,
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}&allowWatchBookmarks=true"),
        *WRITES,
        read_watch("all", 9),
    ],
    "replaced and patched in one watch": [
        post(CONFIG_MAPS, config_map(), save="made", shown=False),
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}"),
        put(ONE, config_map(data={"key": "other"}), shown=False),
        put(ONE, config_map(data={"key": "other"}), shown=False),
        patch(ONE, [{"op": "add", "path": "/data/more", "value": "1"}], JSON_PATCH, shown=False),
        read_watch("all", 2),
    ],
    "an object that is gone and made again is new": [
        post(CONFIG_MAPS, config_map(), save="made", shown=False),
        open_watch("all", f"{CONFIG_MAPS}?{SINCE}&fieldSelector=metadata.name%3Da"),
        delete(ONE, shown=False),
        post(CONFIG_MAPS, config_map(), shown=False),
        read_watch("all", 2),
    ],
    "a collection deleted is told one by one": [
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
