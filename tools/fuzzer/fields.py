"""Fields of objects with valid and invalid values.

Whole objects, patches of the three types, applied configurations and mistakes in all of them are generated
from the table of fields of a kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Json = dict[str, object]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Field:
    path: Path
    good: tuple[object, ...]
    bad: tuple[object, ...] = ()


def field(path: str, good: Sequence[object], bad: Sequence[object] = ()) -> Field:
    """A field by its path, separated by slashes because names of fields may have dots."""
    return Field(tuple(path.split("/")), tuple(good), tuple(bad))


def fragment(path: Path, value: object) -> Json:
    """An object with only that field."""
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def merged(base: Json, more: Json) -> Json:
    """Both objects merged; of other values than maps the second wins."""
    result = dict(base)
    for name, value in more.items():
        before = result.get(name)
        both = isinstance(before, dict) and isinstance(value, dict)
        result[name] = merged(before, value) if both else value  # type: ignore[arg-type]
    return result


def owner(**changes: object) -> Json:
    """A reference to an owner that does not exist, which API servers accept."""
    uid = "00000000-0000-0000-0000-00000000000a"
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, **changes}


METADATA = (
    field(
        "metadata/labels",
        [{"x": "1"}, {"x": "2", "y": "1"}, {}, {"example.com/app": "a"}, {"x": ""}, None],
        [
            {"x": 1},
            {"bad key": "1"},
            {"x": "no label!"},
            {"x" * 64: "1"},
            {"x": "y" * 64},
            {"a/b/c": "1"},
            {"": "1"},
            {"-x": "1"},
            "text",
            ["x"],
        ],
    ),
    field(
        "metadata/annotations",
        [{"note": "some"}, {"note": "other", "more": ""}, {}, {"Example.com/Note": "any text, even this"}],
        [{"note": 1}, {"bad key": "1"}, {"a/b/c": "1"}, {"note": True}, "text", {"": "1"}],
    ),
    field(
        "metadata/finalizers",
        [["example.com/hold"], ["example.com/hold", "example.com/more"], [], None],
        [["hold"], ["bad finalizer"], "example.com/hold", [1], ["example.com/a", "example.com/a"]],
    ),
    field(
        "metadata/ownerReferences",
        [
            [owner()],
            [owner(controller=True, blockOwnerDeletion=True)],
            [owner(), owner(name="other", uid="00000000-0000-0000-0000-00000000000b")],
            [],
        ],
        [
            [owner(uid="")],
            [owner(name="")],
            [owner(kind="")],
            [owner(apiVersion="")],
            [owner(apiVersion="a/b/c")],
            [owner(controller=True), owner(controller=True, uid="00000000-0000-0000-0000-00000000000b")],
            [owner(), owner()],
            [{"name": "owner"}],
            [owner(controller="yes")],
            [owner(kind="Event")],
            {},
        ],
    ),
)
"""Fields of every kind."""

SYSTEM = (
    field("metadata/uid", ["00000000-0000-0000-0000-000000000001"]),
    field("metadata/resourceVersion", ["x", "abc", ""]),
    field("metadata/creationTimestamp", ["2020-01-01T00:00:00Z", None], ["yesterday", 1]),
    field("metadata/deletionTimestamp", [], ["tomorrow"]),
    field("metadata/deletionGracePeriodSeconds", [], ["5"]),
    field("metadata/generation", [7], ["7", 1.5]),
    field("metadata/namespace", ["$ns", ""], ["default", 1]),
    field("metadata/generateName", ["g-"], [1]),
    field(
        "metadata/managedFields",
        [None],
        [
            [{"manager": "m", "operation": "Nonsense", "apiVersion": "v1"}],
            [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV2"}],
            "text",
        ],
    ),
    field("apiVersion", ["v1", "batch/v1"], ["v2", "x/y/z", 1, ""]),
    field("kind", ["ConfigMap", "Pod"], ["Nonsense", 1, ""]),
    field("nonsense", [], [1, "x", None, {"a": 1}]),
    field("metadata/nonsense", [], [1, "x"]),
    field("metadata", [], ["text", [], None, 1]),
)
"""Fields that clients may send although the server sets them."""
