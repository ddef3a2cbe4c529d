"""Tests that the chart and the docs are what their generator writes from the registered APIs."""

from dataclasses import replace
from pathlib import Path

import pytest

from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.argosy import ARGOSY
from argosy.operator.apis.base import Api
from argosy.operator.apis.registry import APIS
from argosy.operator.rbac import EXEC_RULE, kind_rules
from tools.chart import CHART, CRDS, DOCS, REPOSITORY, generated_files

GENERATED = generated_files(APIS)
TOYS = replace(ARGOSY, name="toys", rules=kind_rules(TrainingRun), jobs=())


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_committed_file_is_up_to_date(path: Path) -> None:
    assert path.read_text() == GENERATED[path], "run: python -m tools.chart"


def test_every_committed_crd_is_generated() -> None:
    assert set(CRDS.iterdir()) == {path for path in GENERATED if path.parent == CRDS}


WANT_FOR_ANOTHER_API = {
    "named templates: a switch for its rules and its flag": ("_apis.tpl", 2),
    "CRDs: a switch for its kinds": ("crds.yaml", 1),
    "roles of users: a switch for its kinds": ("roles.yaml", 1),
    "webhooks: none, as it has none": ("webhooks.yaml", 0),
}


@pytest.mark.parametrize(("template", "want"), WANT_FOR_ANOTHER_API.values(), ids=WANT_FOR_ANOTHER_API.keys())
def test_another_registered_api_appears(template: str, want: int) -> None:
    text = generated_files((*APIS, TOYS))[CHART / "templates" / template]
    assert text.count("{{- if .Values.apis.toys }}") == want


def test_exec_is_granted_and_documented_only_for_an_api_that_declares_it() -> None:
    def rules(*apis: Api) -> tuple[str, str]:
        files = generated_files(apis)
        return files[CHART / "templates" / "_apis.tpl"], files[DOCS]

    template, docs = rules(*APIS, replace(TOYS, rules=(EXEC_RULE,)))
    section = template.partition("{{- if .Values.apis.toys }}")[2].partition("{{- end }}")[0]
    assert section.endswith('- apiGroups: [""]\n  resources: [pods/exec]\n  verbs: [get, create]\n')
    row = "| `pods/exec` | get, create | `apis.toys` | commands are run in containers of its pods |"
    assert row in docs
    without_template, without_docs = rules(*APIS, TOYS)
    assert without_template.count("pods/exec") == template.count("pods/exec") - 1
    assert row not in without_docs


def test_rules_of_another_registered_api_are_documented() -> None:
    text = generated_files((*APIS, TOYS))[DOCS]
    assert "| `trainingruns` of `argosy.dev` | get, list, watch, patch | `apis.toys` |" in text
