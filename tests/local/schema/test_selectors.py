"""Selectors match the same objects as those of kube-apiserver, and the same texts are invalid."""

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


INVALID = (
    *("app=web,", ",app", "=web", "!=web", "app===web", "app in web", "app in (web", "appin (web)"),
    *("app in (a b)", "n>x", "n>", "app web", "!app=web", "a/b/c=d", "app=-x", "!"),
)


@pytest.mark.parametrize("text", INVALID)
def test_an_invalid_label_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_labels(text)


def test_match_labels_and_match_expressions_are_combined_with_and() -> None:
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


def test_a_field_selector_compares_text_and_unescapes_values() -> None:
    item = {"metadata": {"name": "a,b"}, "status": {"phase": "Running"}}
    assert parse_fields(r"metadata.name=a\,b,status.phase!=Failed").matches(item)
    assert parse_fields("status.reason=").matches(item)
    assert not parse_fields("status.phase=Failed").matches(item)
    assert parse_fields("metadata.name==x").exact("metadata.name") == "x"
    with pytest.raises(SelectorError, match="can't understand 'nonsense'"):
        parse_fields("nonsense")
