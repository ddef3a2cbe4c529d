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
    "a watch from a version tells what came after it": [*CHANGED, watch(SINCE, 4)],
    "a watch from zero begins with what is there": [
        MADE,
        post(CONFIG_MAPS, config_map("b"), shown=False),
        watch(f"{CONFIG_MAPS}?resourceVersion=0", 2),
    ],
    "a watch without a version begins with what is there": [MADE, watch(CONFIG_MAPS, 1)],
    "a watch by label tells arrivals and departures": [
        *CHANGED,
        watch(f"{SINCE}&labelSelector=x%3D1", 2),
        watch(f"{SINCE}&labelSelector=x%3D2", 2),
    ],
    "a watch by field tells of one object": [*CHANGED, watch(f"{SINCE}&fieldSelector=metadata.name%3Db", 1)],
    "a watch of pods by phase tells arrivals and departures": [
        post(PODS, pod(), save="made", shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, shown=False),
        watch(
            f"{PODS}?resourceVersion=$made.metadata.resourceVersion&fieldSelector=status.phase%3DRunning", 2
        ),
    ],
    "a watch at an object's path reads the object": [
        *CHANGED,
        watch(f"{OBJECT}?resourceVersion=$made.metadata.resourceVersion", 3),
    ],
    "a watch ends after its time": [
        MADE,
        watch(f"{SINCE}&timeoutSeconds=1", 1),
    ],
    "initial events end with a bookmark": [
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
    "initial events need resourceVersionMatch": [
        watch(f"{CONFIG_MAPS}?sendInitialEvents=true&allowWatchBookmarks=true", 1),
        watch(f"{CONFIG_MAPS}?sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1", 1),
        watch(f"{CONFIG_MAPS}?resourceVersionMatch=NotOlderThan", 1),
    ],
    "no initial events with sendInitialEvents=false": [
        *CHANGED,
        watch(f"{SINCE}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", 2),
    ],
    "a version from the future is refused": [
        watch(f"{CONFIG_MAPS}?resourceVersion=999999999&timeoutSeconds=1", 1, hide=("details.causes",)),
    ],
    "a version that is no number is refused": [watch(f"{CONFIG_MAPS}?resourceVersion=abc", 1)],
    "a watch as a table": [*CHANGED, watch(SINCE, 2, accept=TABLE)],
    "a watch of metadata only": [*CHANGED, watch(SINCE, 2, accept=PARTIAL)],
    "removal of a finalizer modifies and deletes the object": [
        post(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]), save="made", shown=False),
        delete(OBJECT, shown=False),
        patch(OBJECT, {"metadata": {"finalizers": None}}, shown=False),
        watch(SINCE, 2),
    ],
    "a watch as a table names the columns once": [
        *CHANGED,
        watch(SINCE, 3, accept=TABLE),
    ],
    "a write without changes has no event": [
        MADE,
        patch(OBJECT, {"data": {"key": "value"}}, shown=False),
        patch(OBJECT, {"data": {"key": "other"}}, shown=False),
        watch(SINCE, 1),
    ],
    "events of all namespaces can be watched": [
        *CHANGED,
        watch(
            "/api/v1/configmaps?resourceVersion=$made.metadata.resourceVersion"
            "&fieldSelector=metadata.namespace%3D$ns",
            4,
        ),
    ],
    "a watch of nothing that is served is not found": [watch("/api/v1/namespaces/$ns/nonsense", 1)],
    "watch=true and watch=1 are the same": [
        *CHANGED,
        Step("GET", f"{SINCE}&watch=true", events=1),
        get(f"{SINCE}&watch=false", only=("kind",)),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_watch(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)


def test_a_version_that_is_no_longer_known_is_gone(real_apiserver: Server, short_folder: Path) -> None:
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
