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
    "a merge patch sets, changes and removes": [
        MADE,
        patch(OBJECT, {"data": {"a": "3", "b": None, "c": "4"}, "metadata": {"labels": {"x": None}}}),
        get(OBJECT),
    ],
    "a merge patch that changes nothing keeps the version": [
        MADE,
        patch(OBJECT, {"data": {"a": "1"}}),
        get(OBJECT),
    ],
    "a merge patch of a part that is null removes the part": [MADE, patch(OBJECT, {"data": None})],
    "a merge patch with an old version is a conflict": [
        MADE,
        patch(OBJECT, {"data": {"a": "9"}}),
        patch(
            OBJECT, {"metadata": {"resourceVersion": "$made.metadata.resourceVersion"}, "data": {"a": "10"}}
        ),
    ],
    "a merge patch cannot change the uid": [
        MADE,
        patch(OBJECT, {"metadata": {"uid": "00000000-0000-0000-0000-000000000001"}, "data": {"a": "9"}}),
    ],
    "a merge patch cannot rename": [MADE, patch(OBJECT, {"metadata": {"name": "b"}})],
    "a merge patch that is no object is refused": [
        MADE,
        patch(OBJECT, [1]),
        patch(OBJECT, '"text"'),
        patch(OBJECT, "{"),
    ],
    "a merge patch of the wrong type is refused": [
        MADE,
        patch(OBJECT, {"data": {"a": 5}}, hide=WHOLE_OBJECT),
        patch(OBJECT, {"data": []}, hide=WHOLE_OBJECT),
    ],
    "a patch of nothing is not found": [patch(f"{CONFIG_MAPS}/none", {})],
    "a JSON patch does its operations in order": [
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
    "a JSON patch's path can hold slashes and tildes": [
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
    "a JSON patch whose test fails is refused": [
        MADE,
        patch(OBJECT, [{"op": "test", "path": "/data/a", "value": "2"}], JSON_PATCH),
    ],
    "a JSON patch that removes nothing is refused": [
        MADE,
        patch(OBJECT, [{"op": "remove", "path": "/data/none"}], JSON_PATCH),
    ],
    "a JSON patch below nothing is refused": [
        MADE,
        patch(OBJECT, [{"op": "add", "path": "/binaryData/x", "value": "eA=="}], JSON_PATCH),
    ],
    "a JSON patch may replace what is not there": [
        MADE,
        patch(OBJECT, [{"op": "replace", "path": "/data/none", "value": "1"}], JSON_PATCH),
    ],
    "a JSON patch with an unknown operation is refused": [
        MADE,
        patch(OBJECT, [{"op": "jump", "path": "/data"}], JSON_PATCH),
    ],
    "a JSON patch of things that are no operations is refused": [
        MADE,
        *(patch(OBJECT, body, JSON_PATCH) for body in BAD_OPERATIONS),
        get(OBJECT),
    ],
    "an empty JSON patch changes nothing": [
        MADE,
        patch(OBJECT, [], JSON_PATCH),
        patch(OBJECT, "null", JSON_PATCH),
    ],
    "a JSON patch that cannot be read is refused": [
        MADE,
        *(patch(OBJECT, body, JSON_PATCH) for body in ("[", "x", "1", '"x"', "", "[{}", "{}")),
    ],
    "a merge patch that is nothing of the kind is refused": [
        MADE,
        *(patch(OBJECT, body, MERGE) for body in ("[", "1", "[]", "null", '"x"', "[1]", "true")),
    ],
    "a strategic patch that is no object is refused": [
        MADE,
        *(patch(OBJECT, body, STRATEGIC) for body in ("[", "1", "[]", "null", '"x"')),
    ],
    "a JSON patch that is no list is refused": [MADE, patch(OBJECT, {"op": "add"}, JSON_PATCH)],
    "a JSON patch can touch items of a list": [
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
    "a JSON patch beyond the end of a list is refused": [
        POD,
        patch(f"{PODS}/a", [{"op": "remove", "path": "/metadata/finalizers/7"}], JSON_PATCH),
    ],
    "a strategic patch merges containers by name": [
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
    "a strategic patch with setElementOrder sets the order": [
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
    "a strategic patch with directive replace replaces": [
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
    "a strategic patch with retainKeys removes other keys": [
        DEPLOYMENT,
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
            STRATEGIC,
        ),
    ],
    "a strategic patch with deleteFromPrimitiveList removes items": [
        POD,
        patch(
            f"{PODS}/a",
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}},
            STRATEGIC,
        ),
        patch(f"{PODS}/a", {"metadata": {"finalizers": ["example.com/c"]}}, STRATEGIC),
    ],
    "a strategic patch replaces a list that has no key": [
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
    "a strategic patch adds a condition by its type": [
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
    "a strategic patch without a list item's key is refused": [
        DEPLOYMENT,
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
            STRATEGIC,
        ),
    ],
    "a strategic patch with null removes": [
        MADE,
        patch(OBJECT, {"data": {"a": None}, "metadata": {"labels": None}}, STRATEGIC),
    ],
    "a patch of an unknown content type is refused": [
        MADE,
        patch(OBJECT, {}, "application/json"),
        patch(OBJECT, {}, ""),
    ],
    "a patch names its field manager": [
        MADE,
        patch(f"{OBJECT}?fieldManager=bob", {"data": {"z": "1"}}, MERGE),
        get(OBJECT),
    ],
    "a field manager's name must be printable and short": [
        MADE,
        patch(f"{OBJECT}?fieldManager={'x' * 129}", {"data": {"z": "1"}}),
        patch(f"{OBJECT}?fieldManager=%01", {"data": {"z": "1"}}),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_patches(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
