"""Watches that are open while others write: each tells the same story, in the same order."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import JSON_PATCH, Step, delete, heard, listen, patch, post, put
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
    "all is told": [MADE, listen("all", f"{CONFIG_MAPS}?{SINCE}"), *WRITES, heard("all", 9)],
    "who watches by label is told of those that come and go": [
        MADE,
        listen("one", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1"),
        listen("two", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D2"),
        listen("none", f"{CONFIG_MAPS}?{SINCE}&labelSelector=!x"),
        *WRITES,
        heard("one", 7),
        heard("two", 2),
        heard("none", 4),
    ],
    "who watches by field is told of those that come and go": [
        post(PODS, pod("z"), save="made", shown=False),
        listen("running", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning"),
        listen("here", f"{PODS}?{SINCE}&fieldSelector=spec.nodeName%3Dn1"),
        listen("waiting", f"{PODS}?{SINCE}&fieldSelector=spec.nodeName%3D,status.phase%3DPending"),
        post(PODS, pod(), shown=False),
        post(
            f"{RUNNING}/binding",
            {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "n1"}},
            shown=False,
        ),
        patch(f"{RUNNING}/status", {"status": {"phase": "Running"}}, shown=False),
        patch(f"{RUNNING}/status", {"status": {"phase": "Failed"}}, shown=False),
        delete(RUNNING, shown=False),
        heard("running", 2),
        heard("here", 4),
        heard("waiting", 2),
    ],
    "a pod deleted at once is told as changed and gone": [
        *BOUND,
        listen("pods", f"{PODS}?{SINCE}"),
        heard("pods", 1, shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        heard("pods", 2),
    ],
    "a pod deleted at once by its body is told the same": [
        *BOUND,
        listen("pods", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning"),
        heard("pods", 1, shown=False),
        delete(RUNNING, {"gracePeriodSeconds": 0}, shown=False),
        heard("pods", 2),
    ],
    "a pod that runs nowhere is told as changed and gone": [
        post(PODS, pod(), save="made", shown=False),
        listen("pods", f"{PODS}?{SINCE}"),
        delete(RUNNING, shown=False),
        heard("pods", 2),
    ],
    "a pod with a finalizer goes in three steps": [
        post(
            PODS, pod(metadata={"finalizers": ["example.com/hold"]}, nodeName="n1"), save="made", shown=False
        ),
        listen("pods", f"{PODS}?{SINCE}"),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        patch(RUNNING, {"metadata": {"finalizers": None}}, shown=False),
        heard("pods", 2),
    ],
    "a pod's grace, shortened and ended": [
        *BOUND,
        listen("pods", f"{PODS}?{SINCE}"),
        heard("pods", 1, shown=False),
        delete(RUNNING, shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=5", shown=False),
        delete(f"{RUNNING}?gracePeriodSeconds=0", shown=False),
        heard("pods", 4),
    ],
    "what is there, then a bookmark, then what comes": [
        MADE,
        post(CONFIG_MAPS, config_map("second"), shown=False),
        listen("all", f"{CONFIG_MAPS}?{INITIAL}"),
        heard("all", 3),
        *WRITES,
        heard("all", 9),
    ],
    "initial events from a version, with a selector": [
        MADE,
        labelled("first", "1"),
        listen("one", f"{CONFIG_MAPS}?{INITIAL}&{SINCE}&labelSelector=x%3D1"),
        heard("one", 2),
        *WRITES,
        heard("one", 7),
    ],
    "initial events of nothing are a bookmark": [
        listen("none", f"{CONFIG_MAPS}?{INITIAL}&labelSelector=x%3D9"),
        heard("none", 1),
    ],
    "initial events without bookmarks are refused": [
        listen("one", f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        listen("two", f"{CONFIG_MAPS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        listen("three", f"{CONFIG_MAPS}?sendInitialEvents=perhaps&resourceVersionMatch=NotOlderThan"),
    ],
    "initial events as metadata": [
        MADE,
        listen("all", f"{CONFIG_MAPS}?{INITIAL}", accept=PARTIAL),
        heard("all", 2),
        *WRITES[:2],
        heard("all", 2),
    ],
    "initial events as tables": [
        MADE,
        listen("all", f"{CONFIG_MAPS}?{INITIAL}", accept=TABLE),
        heard("all", 2),
        *WRITES[:2],
        heard("all", 2),
    ],
    "initial events of nothing as tables": [
        listen("none", f"{CONFIG_MAPS}?{INITIAL}", accept=TABLE),
        heard("none", 1),
        *WRITES[:1],
        heard("none", 1),
    ],
    "initial events of pods as tables": [
        listen("none", f"{PODS}?{INITIAL}", accept=TABLE),
        heard("none", 1),
        post(PODS, pod(), shown=False),
        heard("none", 1),
    ],
    "tables of what comes": [
        MADE,
        listen("all", f"{CONFIG_MAPS}?{SINCE}", accept=TABLE),
        *WRITES,
        heard("all", 9),
    ],
    "tables of pods by phase": [
        *BOUND,
        listen("pods", f"{PODS}?{SINCE}&fieldSelector=status.phase%3DRunning", accept=TABLE),
        patch(f"{RUNNING}/status", {"status": {"phase": "Failed", "reason": "Evicted"}}, shown=False),
        delete(RUNNING, shown=False),
        heard("pods", 2),
    ],
    "tables with whole objects, and with none": [
        MADE,
        listen("whole", f"{CONFIG_MAPS}?{SINCE}&includeObject=Object", accept=TABLE),
        listen("none", f"{CONFIG_MAPS}?{SINCE}&includeObject=None", accept=TABLE),
        *WRITES[:3],
        heard("whole", 3),
        heard("none", 3),
    ],
    "metadata of those that come and go": [
        MADE,
        listen("one", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1", accept=PARTIAL),
        *WRITES,
        heard("one", 7),
    ],
    "a watch that asks for bookmarks is told of changes the same": [
        MADE,
        listen("all", f"{CONFIG_MAPS}?{SINCE}&allowWatchBookmarks=true"),
        *WRITES,
        heard("all", 9),
    ],
    "replaced and patched in one watch": [
        post(CONFIG_MAPS, config_map(), save="made", shown=False),
        listen("all", f"{CONFIG_MAPS}?{SINCE}"),
        put(ONE, config_map(data={"key": "other"}), shown=False),
        put(ONE, config_map(data={"key": "other"}), shown=False),
        patch(ONE, [{"op": "add", "path": "/data/more", "value": "1"}], JSON_PATCH, shown=False),
        heard("all", 2),
    ],
    "an object that is gone and made again is new": [
        post(CONFIG_MAPS, config_map(), save="made", shown=False),
        listen("all", f"{CONFIG_MAPS}?{SINCE}&fieldSelector=metadata.name%3Da"),
        delete(ONE, shown=False),
        post(CONFIG_MAPS, config_map(), shown=False),
        heard("all", 2),
    ],
    "a collection deleted is told one by one": [
        MADE,
        post(CONFIG_MAPS, config_map(labels={"x": "1"}), shown=False),
        listen("all", f"{CONFIG_MAPS}?{SINCE}&labelSelector=x%3D1"),
        heard("all", 1, shown=False),
        delete(f"{CONFIG_MAPS}?labelSelector=x", shown=False),
        heard("all", 1),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_live(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
