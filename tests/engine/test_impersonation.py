import pytest

from argosy.engine.impersonation import Headers, impersonation_headers
from argosy.engine.kubeconfig_entries import KubeconfigEntry, KubeconfigError

USERS: dict[str, tuple[dict[str, object], Headers]] = {
    "a user without `as`: no headers": ({"token": "t"}, ()),
    "a user who acts as another": ({"as": "jane"}, (("Impersonate-User", "jane"),)),
    "a uid": (
        {"as": "jane", "as-uid": "u-1"},
        (("Impersonate-User", "jane"), ("Impersonate-Uid", "u-1")),
    ),
    "groups have a header each": (
        {"as": "jane", "as-groups": ["a", "b, c"]},
        (("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b, c")),
    ),
    "values of extra have a header each": (
        {"as": "jane", "as-user-extra": {"scopes": ["view", "edit"]}},
        (
            ("Impersonate-User", "jane"),
            ("Impersonate-Extra-scopes", "view"),
            ("Impersonate-Extra-scopes", "edit"),
        ),
    ),
    "names of extra are escaped where a header's name cannot hold them": (
        {"as": "jane", "as-user-extra": {"example.com/a%b": ["x"]}},
        (("Impersonate-User", "jane"), ("Impersonate-Extra-example.com%2Fa%25b", "x")),
    ),
}


@pytest.mark.parametrize("sentence", USERS)
def test_a_user_acts_as(sentence: str) -> None:
    user, want = USERS[sentence]
    assert impersonation_headers(KubeconfigEntry(user)) == want


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "a uid without `as`": ({"as-uid": "u"}, r"users\[me\]\.as-uid: .*`as`"),
    "groups without `as`": ({"as-groups": ["g"]}, r"users\[me\]\.as-groups: .*`as`"),
    "extra without `as`": ({"as-user-extra": {"k": ["v"]}}, r"users\[me\]\.as-user-extra: .*`as`"),
    "groups that are no list": ({"as": "j", "as-groups": "g"}, r"users\[me\]\.as-groups: Expected `array`"),
    "extra whose values are no lists": (
        {"as": "j", "as-user-extra": {"k": "v"}},
        r"users\[me\]\.as-user-extra: Expected `array`",
    ),
    "a name with a line end": ({"as": "j\r\nX: y"}, r"users\[me\]\.as: .*control characters"),
    "a group with a line end": ({"as": "j", "as-groups": ["a\nb"]}, r"users\[me\]\.as-groups: .*control"),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_impersonated_is_refused_by_name(sentence: str) -> None:
    user, want = REFUSED[sentence]
    with pytest.raises(KubeconfigError, match=want):
        impersonation_headers(KubeconfigEntry(user, location="config: users[me]"))
