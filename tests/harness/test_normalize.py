"""Tests for normalising responses before they are compared."""

import pytest

from tests.support.normalize import Normaliser

UID = "0b2b9a4e-7d6f-4a52-9f0a-0123456789ab"


def _item(name: str, version: str, generated: str = "") -> dict[str, object]:
    more = {"generateName": "g-", "labels": {"made": generated}} if generated else {}
    return {"metadata": {**more, "name": name, "resourceVersion": version}}


CASES: dict[str, tuple[object, object]] = {
    "uid: replaced by its number": ({"uid": UID}, {"uid": "<uid 1>"}),
    "uid in a text: replaced by its number": (f"uid {UID} is gone", "uid <uid 1> is gone"),
    "equal versions: equal numbers": (
        [{"resourceVersion": "7"}, {"resourceVersion": "9"}, {"resourceVersion": "7"}],
        [
            {"resourceVersion": "<version 1>"},
            {"resourceVersion": "<version 2>"},
            {"resourceVersion": "<version 1>"},
        ],
    ),
    "version 0 and empty version: unchanged": (
        [{"resourceVersion": "0"}, {"resourceVersion": ""}],
        [{"resourceVersion": "0"}, {"resourceVersion": ""}],
    ),
    "version of a list: placeholder": (
        {"items": [], "metadata": {"resourceVersion": "7"}},
        {"items": [], "metadata": {"resourceVersion": "<any version>"}},
    ),
    "times: placeholder with the precision": (
        ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000001Z", "2026-01-01"],
        ["<time>", "<micro time>", "2026-01-01"],
    ),
    "list of objects with generated names: sorted by version": (
        {"items": [_item("a", "1"), _item("g-aaaaa", "9", "second"), _item("g-zzzzz", "5", "first")]},
        {
            "items": [
                _item("a", "<version 1>"),
                _item("g-<5>", "<version 2>", "first"),
                _item("g-<5>", "<version 3>", "second"),
            ]
        },
    ),
    "generated name: prefix and length are kept": (
        [{"generateName": "ab-", "name": "ab-x2x4z"}, 'pods "ab-x2x4z" not found'],
        [{"generateName": "ab-", "name": "ab-<5>"}, 'pods "ab-<5>" not found'],
    ),
    "given name: unchanged": ({"name": "ab-x2x4z"}, {"name": "ab-x2x4z"}),
    "allocated address: placeholder; None: unchanged": (
        [{"clusterIP": "10.96.1.2"}, {"clusterIP": "None"}],
        [{"clusterIP": "<cluster ip>"}, {"clusterIP": "None"}],
    ),
    "node port: numbered, also in a Table": (
        {
            "nodePort": 30001,
            "rows": [{"cells": ["8:30001/TCP,9:30002/UDP", "8/TCP"]}],
            "targetPort": 30001,
        },
        {
            "nodePort": "<node port 1>",
            "rows": [{"cells": ["8:<node port 1>/TCP,9:<node port 2>/UDP", "8/TCP"]}],
            "targetPort": 30001,
        },
    ),
    "Table: only ages are replaced": (
        {
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Age"}],
            "rows": [{"cells": ["5s", "5s"]}],
        },
        {
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Age"}],
            "rows": [{"cells": ["5s", "<age>"]}],
        },
    ),
    "managedFields: order is ignored": (
        {"managedFields": [{"manager": "b"}, {"manager": "a"}]},
        {"managedFields": [{"manager": "a"}, {"manager": "b"}]},
    ),
    "numbers and booleans: unchanged": ({"a": 1, "b": True, "c": None}, {"a": 1, "b": True, "c": None}),
}


@pytest.mark.parametrize(("response", "want"), CASES.values(), ids=CASES)
def test_normalised_response(response: object, want: object) -> None:
    assert Normaliser().normal(response) == want
