"""Selectors select what kube-apiserver selects, and refuse what it refuses."""

import pytest

from argosy.local.schema.selectors import SelectorError, parse_fields, parse_labels, selector_from

LABELS = {"app": "web", "tier": "front", "n": "5", "empty": ""}

MATCHES = {
    "": True,
    "app=web": True,
    "app==web,tier=front": True,
    "app!=web": False,
    "other!=web": True,
    "app in (web, api)": True,
    "app notin (web)": False,
    "other notin (web)": True,
    "app": True,
    "!app": False,
    "!other": True,
    "n>4": True,
    "n<5": False,
    "empty=": True,
    "empty in ()": True,
    "app in (web),!other,n>1": True,
}


@pytest.mark.parametrize(("text", "want"), MATCHES.items())
def test_a_label_selector_matches(text: str, want: bool) -> None:
    assert parse_labels(text).matches(LABELS) is want


REFUSED = {
    "app=web,": "found '', expected: identifier after ','",
    "=web": "found '=', expected: !, identifier, or 'end of string'",
    "!=web": "found '!=', expected: !, identifier, or 'end of string'",
    "app===web": "unable to parse requirement: found '=', expected: identifier",
    "app in web": "unable to parse requirement: found 'web' expected: '('",
}


@pytest.mark.parametrize(("text", "want"), REFUSED.items())
def test_a_label_selector_that_cannot_be_read_is_refused(text: str, want: str) -> None:
    with pytest.raises(SelectorError) as error:
        parse_labels(text)
    assert str(error.value) == want


def test_match_labels_and_expressions_all_have_to_hold() -> None:
    selector = selector_from(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector.matches(LABELS)
    assert not selector.matches({**LABELS, "old": ""})
    assert not selector.matches({"app": "web"})


def test_a_field_selector_compares_text_and_unescapes() -> None:
    item = {"metadata": {"name": "a,b"}, "status": {"phase": "Running"}}
    assert parse_fields(r"metadata.name=a\,b,status.phase!=Failed").matches(item)
    assert parse_fields("status.reason=").matches(item)
    assert not parse_fields("status.phase=Failed").matches(item)
    assert parse_fields("metadata.name==x").exact("metadata.name") == "x"
    with pytest.raises(SelectorError, match="can't understand 'nonsense'"):
        parse_fields("nonsense")
