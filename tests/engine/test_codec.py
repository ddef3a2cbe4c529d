import pytest

from argosy.engine.codec import Bookmark, Codec, Undecodable, WatchEvent, encode_body
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import ApiError, Gone, Unavailable
from argosy.kinds.kubernetes import ConfigMap, Pod


def test_an_event_becomes_a_typed_object() -> None:
    event = Codec(Pod).event(b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}')
    assert isinstance(event, WatchEvent)
    assert event.object.metadata.resource_version == "7"


def test_a_bookmark_need_not_fit_the_type() -> None:
    line = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"},"status":null}}'
    assert Codec(Pod).event(line) == Bookmark("9")


def test_the_bookmark_that_ends_the_initial_events_says_so() -> None:
    line = (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",'
        b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
    )
    assert Codec(Pod).event(line) == Bookmark("9", initial_events_end=True)


def test_an_error_event_raises_its_error() -> None:
    with pytest.raises(Gone, match="too old"):
        Codec(Pod).event(
            b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'
        )


def test_half_a_line_is_no_answer() -> None:
    with pytest.raises(Unavailable, match="not JSON"):
        Codec(Pod).event(b'{"type":"ADDED","object":{"metada')


def test_one_object_that_does_not_fit_hides_no_other_in_a_list() -> None:
    body = (
        b'{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"good"}},'
        b'{"metadata":{"name":"bad"},"data":{"a":1}}]}'
    )
    page = Codec(ConfigMap).page(body)
    assert [item.metadata.name for item in page.items] == ["good"]
    assert [(bad.metadata.name, bad.path) for bad in page.undecodable] == [("bad", "data.a")]


def test_an_object_that_does_not_fit_is_named_in_a_watch() -> None:
    event = Codec(ConfigMap).event(b'{"type":"ADDED","object":{"metadata":{"name":"bad"},"data":3}}')
    assert isinstance(event, Undecodable)
    assert (event.metadata.name, event.path, event.problem) == ("bad", "data", "Expected `object`, got `int`")
    assert not event.deleted


def test_the_end_of_an_object_that_does_not_fit_is_known_as_such() -> None:
    event = Codec(ConfigMap).event(b'{"type":"DELETED","object":{"metadata":{"name":"bad"},"data":3}}')
    assert isinstance(event, Undecodable)
    assert event.deleted


def test_an_object_fetched_alone_that_does_not_fit_is_an_error_with_the_path() -> None:
    with pytest.raises(ApiError, match=r"ConfigMap cannot be decoded.*\$\.data"):
        Codec(ConfigMap).object(b'{"metadata":{"name":"bad"},"data":3}')


def test_a_kind_known_only_at_run_time_keeps_its_whole_json() -> None:
    kind = dynamic_kind(ConfigMap.resource)
    event = Codec(kind).event(b'{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":{"x":[1]}}}')
    assert isinstance(event, WatchEvent)
    assert event.object.metadata.name == "a"
    assert event.object.raw["spec"] == {"x": [1]}
    assert (event.object.raw["apiVersion"], event.object.raw["kind"]) == ("v1", "ConfigMap")


def test_a_body_gets_its_kind_filled_in_and_keeps_its_own() -> None:
    assert encode_body({"data": {}}, ConfigMap) == b'{"data":{},"apiVersion":"v1","kind":"ConfigMap"}'
    assert encode_body({"kind": "X", "apiVersion": "y"}, ConfigMap) == b'{"kind":"X","apiVersion":"y"}'
