"""Tests for the subset of Go's template language that the chart uses; `test_helm` compares whole charts."""

import pytest

from argosy.gotemplate import TemplateError, Templates

DOT = {
    "name": "a",
    "none": "",
    "list": [1, 2],
    "map": {"y": "2", "x": "1"},
    "deep": {"flag": True},
    "add": lambda left, right: left + right,
}
CASES = {
    "text without actions: unchanged": ("a: {b}", "a: {b}"),
    "field: its value": ("<{{ .name }}>", "<a>"),
    "nested field: its value": ("{{ .deep.flag }}", "true"),
    "missing field: empty": ("<{{ .missing }}>", "<>"),
    "trim markers: remove the adjacent space": ("a \n {{- .name -}} \n b", "aab"),
    "comment: empty": ("a{{/* {{ not }} read */}}b", "ab"),
    "function with arguments: called with them": ("{{ up .name }}", "A"),
    "pipeline: its value is the last argument": ('{{ .name | join "-" "b" }}', "-ba"),
    "parentheses: evaluated first": ('{{ join (up "x") "y" "z" }}', "Xyz"),
    "field that is a function: called": ("{{ .add 2 3 }}", "5"),
    "quoted literal: its text": ('{{ join "a\\n" "}}" "" }}', "a\n}}"),
    "if with a true condition: the block": ("{{ if .name }}yes{{ end }}{{ if .none }}no{{ end }}", "yes"),
    "if with a false condition: the else block": ("{{ if .none }}a{{ else }}b{{ end }}", "b"),
    "else if with a true condition: its block": (
        "{{ if .none }}a{{ else if .name }}b{{ else }}c{{ end }}",
        "b",
    ),
    "with: sets the dot and keeps the dollar": ("{{ with .deep }}{{ .flag }}{{ $.name }}{{ end }}", "truea"),
    "with an empty value: no output": ("{{ with .none }}a{{ end }}", ""),
    "range over a list: the block per item": ("{{ range .list }}<{{ . }}>{{ end }}", "<1><2>"),
    "range over a map: sorted by key": ("{{ range $k, $v := .map }}{{ $k }}{{ $v }}{{ end }}", "x1y2"),
    "variable: its value": ("{{ $x := .name }}{{ $x }}{{ $x }}", "aa"),
    "variable set in a block: scoped to the block": (
        "{{ $x := .name }}{{ if .name }}{{ $x := .list }}{{ end }}{{ $x }}",
        "a",
    ),
    "include: the named template": (
        '{{ define "t" }}<{{ .flag }}>{{ end }}{{ include "t" .deep }}',
        "<true>",
    ),
}
INVALID = {
    "unknown function: error names it": ("{{ nonsuch 1 }}", "nonsuch"),
    "block without end: error": ("{{ if .name }}", "missing end"),
    "unclosed braces: error": ("{{ .name", "invalid syntax"),
    "field of a missing field: error": ("{{ .missing.field }}", "field"),
    "unclosed parenthesis: error": ("{{ up (.name }}", "parenthesis"),
    "empty command: error": ("{{ .name | }}", "missing"),
}


def rendered(source: str) -> str:
    templates = Templates({"up": lambda text: text.upper(), "join": lambda *words: "".join(words)})
    templates.add("t.yaml", source)
    return templates.render("t.yaml", DOT)


@pytest.mark.parametrize("case", CASES)
def test_template(case: str) -> None:
    source, want = CASES[case]
    assert rendered(source) == want


@pytest.mark.parametrize("case", INVALID)
def test_invalid_template_is_an_error(case: str) -> None:
    source, want = INVALID[case]
    with pytest.raises(TemplateError, match=want):
        rendered(source)
