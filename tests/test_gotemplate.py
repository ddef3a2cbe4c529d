"""The part of Go's template language that the chart uses; `test_helm` holds all of it against Helm itself."""

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
    "text stays": ("a: {b}", "a: {b}"),
    "a field": ("<{{ .name }}>", "<a>"),
    "a field of a field": ("{{ .deep.flag }}", "true"),
    "a field that is not there is nothing": ("<{{ .missing }}>", "<>"),
    "minus signs eat the space beside them": ("a \n {{- .name -}} \n b", "aab"),
    "a comment is nothing": ("a{{/* {{ not }} read */}}b", "ab"),
    "a function with arguments": ("{{ up .name }}", "A"),
    "a pipeline gives its value as the last argument": ('{{ .name | join "-" "b" }}', "-ba"),
    "parentheses": ('{{ join (up "x") "y" "z" }}', "Xyz"),
    "a field that is a function": ("{{ .add 2 3 }}", "5"),
    "a literal in quotes": ('{{ join "a\\n" "}}" "" }}', "a\n}}"),
    "if": ("{{ if .name }}yes{{ end }}{{ if .none }}no{{ end }}", "yes"),
    "else": ("{{ if .none }}a{{ else }}b{{ end }}", "b"),
    "else if": ("{{ if .none }}a{{ else if .name }}b{{ else }}c{{ end }}", "b"),
    "with sets the dot, and the dollar stays": ("{{ with .deep }}{{ .flag }}{{ $.name }}{{ end }}", "truea"),
    "with nothing leaves out": ("{{ with .none }}a{{ end }}", ""),
    "range": ("{{ range .list }}<{{ . }}>{{ end }}", "<1><2>"),
    "range with key and value, in order": ("{{ range $k, $v := .map }}{{ $k }}{{ $v }}{{ end }}", "x1y2"),
    "a variable": ("{{ $x := .name }}{{ $x }}{{ $x }}", "aa"),
    "a variable set in a block is the block's": (
        "{{ $x := .name }}{{ if .name }}{{ $x := .list }}{{ end }}{{ $x }}",
        "a",
    ),
    "include": ('{{ define "t" }}<{{ .flag }}>{{ end }}{{ include "t" .deep }}', "<true>"),
}
WRONG = {
    "a function that is not known": ("{{ nonsuch 1 }}", "nonsuch"),
    "a block without end": ("{{ if .name }}", "no end"),
    "braces that are not closed": ("{{ .name", "not understood"),
    "a field of nothing": ("{{ .missing.field }}", "field"),
    "a parenthesis that is not closed": ("{{ up (.name }}", "parenthesis"),
    "an empty command": ("{{ .name | }}", "missing"),
}


def rendered(source: str) -> str:
    templates = Templates({"up": lambda text: text.upper(), "join": lambda *words: "".join(words)})
    templates.add("t.yaml", source)
    return templates.render("t.yaml", DOT)


@pytest.mark.parametrize("case", CASES)
def test_template(case: str) -> None:
    source, want = CASES[case]
    assert rendered(source) == want


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_understood_is_an_error(case: str) -> None:
    source, want = WRONG[case]
    with pytest.raises(TemplateError, match=want):
        rendered(source)
