"""JSON patches, merge patches and strategic merge patches."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import JSON_PATCH, MERGE, STRATEGIC, Step, get, patch, post
from tests.support.field_paths import Json
from tests.support.manifests import CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod

MADE = post(CONFIG_MAPS, config_map(data={"a": "1", "b": "2"}, labels={"x": "y"}), save="made", shown=False)
POD = post(
    PODS,
    pod(
        metadata={"labels": {"x": "y"}, "finalizers": ["example.com/a", "example.com/b"]},
        tolerations=[{"key": "a", "operator": "Exists"}],
    ),
    shown=False,
)
DEPLOYMENT = post(DEPLOYMENTS, deployment(), shown=False)
OBJECT = f"{CONFIG_MAPS}/a"
WHOLE_OBJECT = ("message", "details.causes.*.message")
"""Texts that repeat the whole object in the field order of Go's structs."""

BAD_OPERATIONS: list[Json] = [
    *([1], ["x"], [None], [[]], [True], [{}], [{"op": 1}]),
    [{"op": "add", "path": 1, "value": 1}],
    [{"op": "add", "value": 1}],
    [{"op": "add", "path": "/data/x"}],
    [{"op": "move", "path": "/data/x"}],
    [{"op": "copy", "from": 1, "path": "/data/x"}],
    [{"op": "add", "path": "data/x", "value": "1"}],
    [{"op": "remove", "path": ""}],
    [{"op": "replace", "path": "", "value": 1}],
    [{"op": "test", "path": "/data/none", "value": None}],
]

CASES: dict[str, list[Step]] = {
    "merge patch: fields are set, changed and removed": [
        MADE,
        patch(OBJECT, {"data": {"a": "3", "b": None, "c": "4"}, "metadata": {"labels": {"x": None}}}),
        get(OBJECT),
    ],
    "merge patch without changes: resourceVersion kept": [
        MADE,
        patch(OBJECT, {"data": {"a": "1"}}),
        get(OBJECT),
    ],
    "merge patch, null for a map: map removed": [MADE, patch(OBJECT, {"data": None})],
    "merge patch with an old resourceVersion: conflict": [
        MADE,
        patch(OBJECT, {"data": {"a": "9"}}),
        patch(
            OBJECT, {"metadata": {"resourceVersion": "$made.metadata.resourceVersion"}, "data": {"a": "10"}}
        ),
    ],
    "merge patch of the uid: rejected": [
        MADE,
        patch(OBJECT, {"metadata": {"uid": "00000000-0000-0000-0000-000000000001"}, "data": {"a": "9"}}),
    ],
    "merge patch of the name: rejected": [MADE, patch(OBJECT, {"metadata": {"name": "b"}})],
    "merge patch of a list, a string or invalid JSON: rejected": [
        MADE,
        patch(OBJECT, [1]),
        patch(OBJECT, '"text"'),
        patch(OBJECT, "{"),
    ],
    "merge patch with a value of the wrong type: rejected": [
        MADE,
        patch(OBJECT, {"data": {"a": 5}}, hide=WHOLE_OBJECT),
        patch(OBJECT, {"data": []}, hide=WHOLE_OBJECT),
    ],
    "patch of a missing object: 404": [patch(f"{CONFIG_MAPS}/none", {})],
    "JSON patch with several operations: applied in order": [
        MADE,
        patch(
            OBJECT,
            [
                {"op": "test", "path": "/data/a", "value": "1"},
                {"op": "replace", "path": "/data/a", "value": "5"},
                {"op": "add", "path": "/data/c", "value": "6"},
                {"op": "remove", "path": "/data/b"},
                {"op": "copy", "from": "/data/c", "path": "/data/d"},
                {"op": "move", "from": "/data/c", "path": "/data/e"},
            ],
            JSON_PATCH,
        ),
    ],
    "JSON patch, escaped slash in a path: part of the key": [
        MADE,
        patch(
            OBJECT,
            [
                {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}},
                {"op": "add", "path": "/metadata/annotations/c~1d", "value": "2"},
                {"op": "remove", "path": "/metadata/annotations/a~1b"},
            ],
            JSON_PATCH,
        ),
    ],
    "JSON patch, test of another value: rejected": [
        MADE,
        patch(OBJECT, [{"op": "test", "path": "/data/a", "value": "2"}], JSON_PATCH),
    ],
    "JSON patch, remove of a missing path: rejected": [
        MADE,
        patch(OBJECT, [{"op": "remove", "path": "/data/none"}], JSON_PATCH),
    ],
    "JSON patch, add below a missing parent: rejected": [
        MADE,
        patch(OBJECT, [{"op": "add", "path": "/binaryData/x", "value": "eA=="}], JSON_PATCH),
    ],
    "JSON patch, replace of a missing path: accepted": [
        MADE,
        patch(OBJECT, [{"op": "replace", "path": "/data/none", "value": "1"}], JSON_PATCH),
    ],
    "JSON patch, unknown operation: rejected": [
        MADE,
        patch(OBJECT, [{"op": "jump", "path": "/data"}], JSON_PATCH),
    ],
    "JSON patch, malformed operations: as kube-apiserver": [
        MADE,
        *(patch(OBJECT, body, JSON_PATCH) for body in BAD_OPERATIONS),
        get(OBJECT),
    ],
    "JSON patch, empty or null: no change": [
        MADE,
        patch(OBJECT, [], JSON_PATCH),
        patch(OBJECT, "null", JSON_PATCH),
    ],
    "JSON patch that is not a JSON list: rejected": [
        MADE,
        *(patch(OBJECT, body, JSON_PATCH) for body in ("[", "x", "1", '"x"', "", "[{}", "{}")),
    ],
    "merge patch that is not a JSON object: rejected": [
        MADE,
        *(patch(OBJECT, body, MERGE) for body in ("[", "1", "[]", "null", '"x"', "[1]", "true")),
    ],
    "strategic patch that is not a JSON object: rejected, null: no change": [
        MADE,
        *(patch(OBJECT, body, STRATEGIC) for body in ("[", "1", "[]", "null", '"x"')),
    ],
    "JSON patch that is an object: rejected": [MADE, patch(OBJECT, {"op": "add"}, JSON_PATCH)],
    "JSON patch of list items: added and removed by index": [
        POD,
        patch(
            f"{PODS}/a",
            [
                {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/c"},
                {"op": "remove", "path": "/metadata/finalizers/0"},
                {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/d"},
            ],
            JSON_PATCH,
        ),
    ],
    "JSON patch, index beyond the end of a list: rejected": [
        POD,
        patch(f"{PODS}/a", [{"op": "remove", "path": "/metadata/finalizers/7"}], JSON_PATCH),
    ],
    "strategic patch of containers: merged by name": [
        DEPLOYMENT,
        patch(
            f"{DEPLOYMENTS}/a",
            {
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "main", "env": [{"name": "A", "value": "1"}]},
                                {"name": "side", "image": "side"},
                            ]
                        }
                    }
                }
            },
            STRATEGIC,
        ),
        patch(
            f"{DEPLOYMENTS}/a",
            {
                "spec": {
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "side", "$patch": "delete"},
                                {"name": "main", "env": [{"name": "B", "value": "2"}]},
                            ]
                        }
                    }
                }
            },
            STRATEGIC,
        ),
    ],
    "strategic patch with $setElementOrder: items in that order": [
        DEPLOYMENT,
        patch(
            f"{DEPLOYMENTS}/a",
            {
                "spec": {
                    "template": {
                        "spec": {
                            "$setElementOrder/containers": [{"name": "first"}, {"name": "main"}],
                            "containers": [{"name": "first", "image": "first"}],
                        }
                    }
                }
            },
            STRATEGIC,
        ),
    ],
    "strategic patch with directive replace: list or map replaced": [
        DEPLOYMENT,
        patch(
            f"{DEPLOYMENTS}/a",
            {
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "only", "image": "only"}, {"$patch": "replace"}]}
                    }
                }
            },
            STRATEGIC,
        ),
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}},
            STRATEGIC,
        ),
    ],
    "strategic patch with $retainKeys: other keys removed": [
        DEPLOYMENT,
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
            STRATEGIC,
        ),
    ],
    "strategic patch with $deleteFromPrimitiveList: items removed": [
        POD,
        patch(
            f"{PODS}/a",
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}},
            STRATEGIC,
        ),
        patch(f"{PODS}/a", {"metadata": {"finalizers": ["example.com/c"]}}, STRATEGIC),
    ],
    "strategic patch of a list without a merge key: list replaced": [
        POD,
        patch(
            f"{PODS}/a",
            {
                "spec": {
                    "tolerations": [
                        {"key": "a", "operator": "Exists"},
                        {"key": "b", "operator": "Exists", "effect": "NoExecute"},
                    ]
                }
            },
            STRATEGIC,
        ),
    ],
    "strategic patch of conditions: merged by type": [
        POD,
        patch(
            f"{PODS}/a/status",
            {"status": {"conditions": [{"type": "Ready", "status": "False"}], "phase": "Running"}},
            STRATEGIC,
        ),
        patch(
            f"{PODS}/a/status",
            {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}},
            STRATEGIC,
        ),
        patch(
            f"{PODS}/a/status",
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            STRATEGIC,
        ),
    ],
    "strategic patch, list item without its merge key: rejected": [
        DEPLOYMENT,
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
            STRATEGIC,
        ),
    ],
    "strategic patch with null: field removed": [
        MADE,
        patch(OBJECT, {"data": {"a": None}, "metadata": {"labels": None}}, STRATEGIC),
    ],
    "patch with an unknown content type: 415": [
        MADE,
        patch(OBJECT, {}, "application/json"),
        patch(OBJECT, {}, ""),
    ],
    "patch with fieldManager: recorded in managedFields": [
        MADE,
        patch(f"{OBJECT}?fieldManager=bob", {"data": {"z": "1"}}, MERGE),
        get(OBJECT),
    ],
    "fieldManager too long or not printable: rejected": [
        MADE,
        patch(f"{OBJECT}?fieldManager={'x' * 129}", {"data": {"z": "1"}}),
        patch(f"{OBJECT}?fieldManager=%01", {"data": {"z": "1"}}),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_patches(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
