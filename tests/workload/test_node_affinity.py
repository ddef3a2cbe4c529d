"""Tests how pods are kept away from nodes."""

from copy import deepcopy

import pytest

from argosy.workload.node_affinity import with_avoided_nodes, with_node_labels, without_node_labels

Json = dict[str, object]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
N1 = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
N2 = {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}
GPU = {"key": "gpu", "operator": "Exists"}


def required(*terms: object) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


CASES: dict[str, tuple[Json, Json]] = {
    "no affinity: one term": ({}, required({"matchFields": [N1, N2]})),
    "alternatives of the user: each of them": (
        required({"matchExpressions": [GPU]}, {"matchFields": [N1]}),
        required({"matchExpressions": [GPU], "matchFields": [N1, N2]}, {"matchFields": [N1, N1, N2]}),
    ),
    "term that matches no node: stays so": (required({}), required({})),
    "other affinity: kept": (
        {"affinity": {"podAffinity": {"a": 1}, "nodeAffinity": {"preferred": [1]}}},
        {
            "affinity": {
                "podAffinity": {"a": 1},
                "nodeAffinity": {
                    "preferred": [1],
                    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [N1, N2]}]},
                },
            }
        },
    ),
    "node named by the template: kept": ({"nodeName": "n1"}, {"nodeName": "n1"}),
    "affinity that is no object: left to the API server": ({"affinity": 7}, {"affinity": 7}),
    "terms that are no list: left to the API server": (
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": 7}}}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": 7}}}},
    ),
}


@pytest.mark.parametrize(("spec", "want"), CASES.values(), ids=CASES.keys())
def test_pods_avoid_nodes(spec: Json, want: Json) -> None:
    before = deepcopy(spec)
    assert with_avoided_nodes(spec, ["n1", "n2"]) == want
    assert with_avoided_nodes(spec, []) == spec
    assert spec == before, "the template was changed in place"


def test_requirements_on_a_label_are_part_of_each_term() -> None:
    terms = required({"matchExpressions": [GPU]}, {"matchFields": [N1]})
    wanted = {"key": "restores", "operator": "In", "values": ["image"]}
    unwanted = {"key": "restores", "operator": "NotIn", "values": ["none"]}
    assert with_node_labels(terms, "restores", ["image"]) == required(
        {"matchExpressions": [GPU, wanted]}, {"matchFields": [N1], "matchExpressions": [wanted]}
    )
    assert without_node_labels(terms, "restores", ["none"]) == required(
        {"matchExpressions": [GPU, unwanted]}, {"matchFields": [N1], "matchExpressions": [unwanted]}
    )
