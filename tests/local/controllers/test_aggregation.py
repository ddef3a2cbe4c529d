import pytest

from argosy.kinds.meta import ObjectMeta
from argosy.local.controllers.aggregation import aggregate_rules
from argosy.local.controllers.api_types import AggregationRule, ClusterRole, LabelSelector, PolicyRule


def rule(resource: str) -> PolicyRule:
    return {"verbs": ["get"], "apiGroups": [""], "resources": [resource]}


def part(name: str, *resources: str, **labels: str) -> ClusterRole:
    return ClusterRole(ObjectMeta(name=name, labels=labels), [rule(resource) for resource in resources])


PODS, NODES, BOTH = part("b", "pods", to="x"), part("a", "nodes", to="x"), part("c", "nodes", "pods", to="y")
CASES: dict[str, tuple[list[dict[str, str]], list[ClusterRole], list[str]]] = {
    "two roles selected: rules in the order of names": ([{"to": "x"}], [PODS, NODES], ["nodes", "pods"]),
    "two selectors: rules in the order of selectors": (
        [{"to": "y"}, {"to": "x"}],
        [PODS, NODES, BOTH],
        ["nodes", "pods"],
    ),
    "no role selected: no rules": ([{"to": "z"}], [PODS, NODES], []),
    "empty selector: all roles": ([{}], [PODS, BOTH], ["pods", "nodes"]),
    "role that selects itself: its own rules are ignored": ([{}], [part("sum", "secrets"), PODS], ["pods"]),
}


@pytest.mark.parametrize(("selectors", "others", "wanted"), CASES.values(), ids=CASES)
def test_aggregated_rules(
    selectors: list[dict[str, str]], others: list[ClusterRole], wanted: list[str]
) -> None:
    chosen = [LabelSelector(match_labels=labels) for labels in selectors]
    role = ClusterRole(ObjectMeta(name="sum"), aggregation_rule=AggregationRule(chosen))
    assert aggregate_rules(role, others) == [rule(resource) for resource in wanted]
