import pytest

from argosy.engine.codec import Bookmark, Codec, Undecodable, WatchEvent, encode_body
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import ApiError, Gone, Unavailable
from argosy.kinds.kubernetes import ConfigMap, Pod


def test_watch_event_is_decoded_to_a_typed_object() -> None:
    event = Codec(Pod).event(b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}')
    assert isinstance(event, WatchEvent)
    assert event.object.metadata.resource_version == "7"


def test_bookmark_is_decoded_without_the_fields_of_its_kind() -> None:
    line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"},"status":null}}'
    assert Codec(Pod).event(line) == Bookmark("9")


def test_bookmark_after_the_initial_events_is_marked() -> None:
    line = (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",'
        b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
    )
    assert Codec(Pod).event(line) == Bookmark("9", initial_events_end=True)


def test_error_event_raises_its_error() -> None:
    with pytest.raises(Gone, match="too old"):
        Codec(Pod).event(
            b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
        )


def test_incomplete_line_raises_unavailable() -> None:
    with pytest.raises(Unavailable, match="not JSON"):
        Codec(Pod).event(b'{"type":"ADDED","object":{"metada')


def test_list_with_an_undecodable_object_returns_the_others() -> None:
    body = (
        b'{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"good"}},'
        b'{"metadata":{"name":"bad"},"data":{"a":1}}]}'
    )
    page = Codec(ConfigMap).page(body)
    assert [item.metadata.name for item in page.items] == ["good"]
    assert [(bad.metadata.name, bad.path) for bad in page.undecodable] == [("bad", "data.a")]


def test_undecodable_object_in_a_watch_has_its_name() -> None:
    event = Codec(ConfigMap).event(b'{"type":"ADDED","object":{"metadata":{"name":"bad"},"data":3}}')
    assert isinstance(event, Undecodable)
    assert (event.metadata.name, event.path, event.problem) == ("bad", "data", "Expected `object`, got `int`")
    assert not event.deleted


def test_deletion_of_an_undecodable_object_is_reported_as_deletion() -> None:
    event = Codec(ConfigMap).event(b'{"type":"DELETED","object":{"metadata":{"name":"bad"},"data":3}}')
    assert isinstance(event, Undecodable)
    assert event.deleted


def test_get_of_an_undecodable_object_raises_an_error_with_the_path() -> None:
    with pytest.raises(ApiError, match=r"ConfigMap cannot be decoded.*\$\.data"):
        Codec(ConfigMap).object(b'{"metadata":{"name":"bad"},"data":3}')


def test_dynamic_kind_keeps_its_whole_json() -> None:
    kind = dynamic_kind(ConfigMap.resource)
    event = Codec(kind).event(b'{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":{"x":[1]}}}')
    assert isinstance(event, WatchEvent)
    assert event.object.metadata.name == "a"
    assert event.object.raw["spec"] == {"x": [1]}
    assert (event.object.raw["apiVersion"], event.object.raw["kind"]) == ("v1", "ConfigMap")


def test_body_without_a_kind_gets_it_and_other_bodies_keep_theirs() -> None:
    assert encode_body({"data": {}}, ConfigMap) == b'{"data":{},"apiVersion":"v1","kind":"ConfigMap"}'
    assert encode_body({"kind": "X", "apiVersion": "y"}, ConfigMap) == b'{"kind":"X","apiVersion":"y"}'
