import pytest

from argosy.engine.impersonation import Headers, impersonation_headers
from argosy.engine.kubeconfig_entries import KubeconfigEntry, KubeconfigError

USERS: dict[str, tuple[dict[str, object], Headers]] = {
    "no as: no headers": ({"token": "t"}, ()),
    "as: Impersonate-User": ({"as": "jane"}, (("Impersonate-User", "jane"),)),
    "as-uid: Impersonate-Uid": (
        {"as": "jane", "as-uid": "u-1"},
        (("Impersonate-User", "jane"), ("Impersonate-Uid", "u-1")),
    ),
    "two groups: a header for each": (
        {"as": "jane", "as-groups": ["a", "b, c"]},
        (("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b, c")),
    ),
    "extra with two values: a header for each": (
        {"as": "jane", "as-user-extra": {"scopes": ["view", "edit"]}},
        (
            ("Impersonate-User", "jane"),
            ("Impersonate-Extra-scopes", "view"),
            ("Impersonate-Extra-scopes", "edit"),
        ),
    ),
    "extra with characters invalid in header names: escaped": (
        {"as": "jane", "as-user-extra": {"example.com/a%b": ["x"]}},
        (("Impersonate-User", "jane"), ("Impersonate-Extra-example.com%2Fa%25b", "x")),
    ),
}


@pytest.mark.parametrize("case", USERS)
def test_impersonation_headers(case: str) -> None:
    user, want = USERS[case]
    assert impersonation_headers(KubeconfigEntry(user)) == want


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "as-uid without as: rejected": ({"as-uid": "u"}, r"users\[me\]\.as-uid: .*`as`"),
    "as-groups without as: rejected": ({"as-groups": ["g"]}, r"users\[me\]\.as-groups: .*`as`"),
    "as-user-extra without as: rejected": (
        {"as-user-extra": {"k": ["v"]}},
        r"users\[me\]\.as-user-extra: .*`as`",
    ),
    "as-groups that is not a list: rejected": (
        {"as": "j", "as-groups": "g"},
        r"users\[me\]\.as-groups: Expected `array`",
    ),
    "as-user-extra whose values are not lists: rejected": (
        {"as": "j", "as-user-extra": {"k": "v"}},
        r"users\[me\]\.as-user-extra: Expected `array`",
    ),
    "name with a line break: rejected": ({"as": "j\r\nX: y"}, r"users\[me\]\.as: .*control characters"),
    "group with a line break: rejected": (
        {"as": "j", "as-groups": ["a\nb"]},
        r"users\[me\]\.as-groups: .*control",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_impersonation_is_rejected_with_its_field(case: str) -> None:
    user, want = REFUSED[case]
    with pytest.raises(KubeconfigError, match=want):
        impersonation_headers(KubeconfigEntry(user, location="config: users[me]"))
