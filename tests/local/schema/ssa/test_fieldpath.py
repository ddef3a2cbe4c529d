"""Operations on field sets equal those on sets of paths."""

from hypothesis import given
from hypothesis import strategies as st

from argosy.local.schema.ssa import fieldpath
from argosy.local.schema.ssa.fieldpath import FieldSet

steps = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
path_lists = st.lists(st.lists(steps, min_size=1, max_size=3).map(tuple), max_size=6)


def field_set(paths: list[tuple[str, ...]]) -> FieldSet:
    result: FieldSet = {}
    for path in paths:
        result = fieldpath.insert(result, path)
    return result


def listed(fields: FieldSet) -> set[tuple[str, ...]]:
    listed = list(fieldpath.paths(fields))
    assert len(listed) == len(set(listed))
    return set(listed)


@given(path_lists, path_lists)
def test_operations_equal_those_of_sets(left: list[tuple[str, ...]], right: list[tuple[str, ...]]) -> None:
    a, b = field_set(left), field_set(right)
    assert listed(a) == set(left)
    assert listed(fieldpath.union(a, b)) == set(left) | set(right)
    assert listed(fieldpath.intersection(a, b)) == set(left) & set(right)
    assert listed(fieldpath.difference(a, b)) == set(left) - set(right)
    assert all(fieldpath.has(a, path) for path in left)


@given(path_lists, path_lists)
def test_without_also_removes_paths_below(left: list[tuple[str, ...]], right: list[tuple[str, ...]]) -> None:
    kept = {p for p in left if not any(p[: len(q)] == q for q in right)}
    assert listed(fieldpath.without(field_set(left), field_set(right))) == kept


def test_path_with_paths_below_it_has_a_dot() -> None:
    assert field_set([("f:a",), ("f:a", "f:b")]) == {"f:a": {".": {}, "f:b": {}}}
    assert field_set([("f:a", "f:b")]) == {"f:a": {"f:b": {}}}
