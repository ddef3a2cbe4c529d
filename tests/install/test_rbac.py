"""Tests that the chart grants exactly the rules that the operator and the registered APIs list."""

from collections.abc import Iterable
from typing import cast

import pytest

from argosy.gotemplate import Templates
from argosy.install.chart import RELEASE, Chart, chart_folder
from argosy.kinds.meta import Json
from argosy.operator.apis.registry import APIS
from argosy.operator.rbac import CORE_RULES, Condition, PolicyRule, Scope

CHART = Chart(chart_folder())
NAMESPACE = "argosy-system"
Right = tuple[str, str, str]
"""API group, resource and verb."""

VALUES: dict[str, Json] = {
    "defaults": {},
    "TrainingRuns only": {"apis": {"ares": False}},
    "AresJobs only": {"apis": {"argosy": False}},
    "everything on": {
        "features": {"sshKeys": True},
        "gang": {"backend": "auto"},
        "webhooks": {"enabled": True},
        "observer": {"enabled": True, "nodePort": 30037},
    },
    "webhook for pods": {"apis": {"spot": True}, "webhooks": {"enabled": True}},
    "VMs and checkpoints without webhooks": {"apis": {"spot": True}},
    "everything off": {"features": {"remoteExec": False}, "gang": {"backend": "none"}},
    "one namespace, builtin gang scheduler": {"watchNamespace": "team", "gang": {"backend": "builtin"}},
}


def holds(condition: Condition, values: Json) -> bool:
    templates: Templates = CHART._templates
    templates.add("condition", "{{- if " + condition.helm + " }}yes{{ end }}")
    return templates.render("condition", CHART._dot(NAMESPACE, values, RELEASE)) == "yes"


def wanted(scopes: tuple[Scope, ...], values: Json) -> set[Right]:
    served = cast("dict[str, bool]", values["apis"])
    rules: Iterable[PolicyRule] = (
        *CORE_RULES,
        *(rule for api in APIS if served[api.name] for rule in api.rules),
    )
    return {
        (rule.group, resource, verb)
        for rule in rules
        if rule.scope in scopes and all(holds(condition, values) for condition in rule.when)
        for resource in rule.resources
        for verb in rule.verbs
    }


def granted(kind: str, name: str, namespace: str, values: Json) -> set[Right]:
    for obj in CHART.objects(NAMESPACE, values):
        metadata = cast("Json", obj["metadata"])
        if (obj["kind"], metadata["name"], metadata.get("namespace", "")) == (kind, name, namespace):
            rules = cast("list[dict[str, list[str]]]", obj["rules"])
            return {
                (group, resource, verb)
                for rule in rules
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return set()


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_chart_grants_the_listed_rules(values: Json) -> None:
    chosen = CHART.values(values)
    cluster_name, watched = f"argosy-operator-{NAMESPACE}", str(chosen["watchNamespace"])
    everywhere: tuple[Scope, ...] = ("cluster",) if watched else ("cluster", "jobs")
    assert granted("ClusterRole", cluster_name, "", chosen) == wanted(everywhere, chosen)
    assert granted("Role", "argosy-operator", NAMESPACE, chosen) == wanted(("operator",), chosen)
    if watched:
        assert granted("Role", cluster_name, watched, chosen) == wanted(("jobs",), chosen)


def test_chart_has_a_switch_for_every_api() -> None:
    assert cast("Json", CHART.values()["apis"]).keys() == {api.name for api in APIS}
