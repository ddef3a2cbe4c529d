"""Watches: events, their order, and how a watch starts and ends."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.differential import Step, delete, get, patch, post, transcript, watch
from tests.support.manifests import CONFIG_MAPS, DEFINITIONS, PODS, WIDGETS, config_map, definition, pod
from tests.support.servers import Server
from tests.support.servers import local_apiserver as start_local

OBJECT = f"{CONFIG_MAPS}/a"
MADE = post(CONFIG_MAPS, config_map(), save="made", shown=False)
SINCE = f"{CONFIG_MAPS}?resourceVersion=$made.metadata.resourceVersion"
CHANGED = (
    MADE,
    patch(OBJECT, {"metadata": {"labels": {"x": "1"}}}, shown=False),
    post(CONFIG_MAPS, config_map("b"), shown=False),
    patch(OBJECT, {"metadata": {"labels": {"x": "2"}}}, shown=False),
    delete(OBJECT, shown=False),
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

CASES: dict[str, list[Step]] = {
    "watch from a resourceVersion: later events": [*CHANGED, watch(SINCE, 4)],
    "watch from resourceVersion 0: existing objects first": [
        MADE,
        post(CONFIG_MAPS, config_map("b"), shown=False),
        watch(f"{CONFIG_MAPS}?resourceVersion=0", 2),
    ],
    "watch without a resourceVersion: existing objects first": [MADE, watch(CONFIG_MAPS, 1)],
    "watch with a label selector: ADDED and DELETED when objects start and stop to match": [
        *CHANGED,
        watch(f"{SINCE}&labelSelector=x%3D1", 2),
        watch(f"{SINCE}&labelSelector=x%3D2", 2),
    ],
    "watch with field selector metadata.name: events of that object": [
        *CHANGED,
        watch(f"{SINCE}&fieldSelector=metadata.name%3Db", 1),
    ],
    "watch of pods with field selector status.phase: ADDED and DELETED": [
        post(PODS, pod(), save="made", shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, shown=False),
        watch(
            f"{PODS}?resourceVersion=$made.metadata.resourceVersion&fieldSelector=status.phase%3DRunning", 2
        ),
    ],
    "watch at the path of a deleted object: 404": [
        *CHANGED,
        watch(f"{OBJECT}?resourceVersion=$made.metadata.resourceVersion", 3),
    ],
    "watch with timeoutSeconds: ends after that time": [
        MADE,
        watch(f"{SINCE}&timeoutSeconds=1", 1),
    ],
    "sendInitialEvents: existing objects, then a bookmark": [
        MADE,
        post(CONFIG_MAPS, config_map("b"), shown=False),
        watch(
            f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            3,
        ),
        watch(
            f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            "&resourceVersion=$made.metadata.resourceVersion",
            3,
        ),
    ],
    "sendInitialEvents without resourceVersionMatch NotOlderThan: rejected": [
        watch(f"{CONFIG_MAPS}?sendInitialEvents=true&allowWatchBookmarks=true", 1),
        watch(f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1", 1),
        watch(f"{CONFIG_MAPS}?resourceVersionMatch=NotOlderThan", 1),
    ],
    "sendInitialEvents=false: no initial events": [
        *CHANGED,
        watch(f"{SINCE}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", 2),
    ],
    "watch from a resourceVersion of the future: no events before its timeout": [
        watch(f"{CONFIG_MAPS}?resourceVersion=999999999&timeoutSeconds=1", 1, hide=("details.causes",)),
    ],
    "watch from a resourceVersion that is not a number: rejected": [
        watch(f"{CONFIG_MAPS}?resourceVersion=abc", 1)
    ],
    "watch as tables: a table for each event": [*CHANGED, watch(SINCE, 2, accept=TABLE)],
    "watch as PartialObjectMetadata: metadata only": [*CHANGED, watch(SINCE, 2, accept=PARTIAL)],
    "finalizer of a terminating object removed: MODIFIED and DELETED": [
        post(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]), save="made", shown=False),
        delete(OBJECT, shown=False),
        patch(OBJECT, {"metadata": {"finalizers": None}}, shown=False),
        watch(SINCE, 2),
    ],
    "watch as tables: columns in the first table only": [
        *CHANGED,
        watch(SINCE, 3, accept=TABLE),
    ],
    "write without changes: no event": [
        MADE,
        patch(OBJECT, {"data": {"key": "value"}}, shown=False),
        patch(OBJECT, {"data": {"key": "other"}}, shown=False),
        watch(SINCE, 1),
    ],
    "watch over all namespaces with a field selector: matching events": [
        *CHANGED,
        watch(
            "/api/v1/configmaps?resourceVersion=$made.metadata.resourceVersion"
            "&fieldSelector=metadata.namespace%3D$ns",
            4,
        ),
    ],
    "watch of an unknown resource: 404": [watch("/api/v1/namespaces/$ns/nonsense", 1)],
    "watch=true: the same as watch=1, and watch=false is a list": [
        *CHANGED,
        Step("GET", f"{SINCE}&watch=true", events=1),
        get(f"{SINCE}&watch=false", only=("kind",)),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_watch(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)


def test_watch_from_a_compacted_version_ends_with_the_error_of_kube_apiserver(
    real_apiserver: Server, short_folder: Path
) -> None:
    """The reference has no history of a kind before its definition; the local server has a low limit."""
    beyond = [
        post(DEFINITIONS, definition(), shown=False),
        get(WIDGETS, until="metadata.resourceVersion", shown=False),
        watch(f"{WIDGETS}?resourceVersion=1", 2),
    ]
    (want,) = transcript(real_apiserver, "t-gone", beyond)
    writes = [post(CONFIG_MAPS, config_map(f"m{number}"), shown=False) for number in range(30)]
    with start_local(short_folder / "forgetful", "--history-count", "5") as ours:
        deadline = time.monotonic() + 30
        transcript(ours, "t-gone", writes)
        watching = [MADE, *writes, watch(f"{SINCE}&timeoutSeconds=1", 2)]
        while (got := transcript(ours, f"t-{time.monotonic_ns()}", watching)) != [want]:
            assert time.monotonic() < deadline, f"{got} is not {want}"
