from argosy.engine.client import Client
from argosy.engine.event_backlog import EventBacklog
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.meta import ObjectMeta
from tests.support.captured_logs import captured_lines
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.waiting import eventually

POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u1"))


def events(server: FakeServer) -> list[tuple[object, object, object]]:
    return [(event["reason"], event["message"], event["count"]) for event in server.objects("events")]


async def test_an_event_names_its_object(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "argosy-operator")
    recorder.event(POD, "Warning", "Broken", "it broke")
    await recorder.close()
    (event,) = server.objects("events")
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["message"], event["count"]) == (
        "Warning",
        "Broken",
        "it broke",
        1,
    )
    assert event["source"] == {"component": "argosy-operator"}


async def test_the_same_thing_again_is_counted_and_not_repeated(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    for _ in range(3):
        recorder.event(POD, "Normal", "Started", "again")
    await eventually(lambda: events(server) == [("Started", "again", 3)])
    for _ in range(2):
        recorder.event(POD, "Normal", "Started", "again")
    recorder.event(POD, "Normal", "Started", "otherwise")
    await recorder.close()
    assert sorted(events(server), key=str) == [("Started", "again", 5), ("Started", "otherwise", 1)]


async def test_an_event_that_was_deleted_meanwhile_begins_anew(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    recorder.event(POD, "Normal", "Started", "x")
    await eventually(lambda: len(server.objects("events")) == 1)
    meta = server.objects("events")[0]["metadata"]
    assert isinstance(meta, dict)
    await server.remove("events", "default", meta["name"])
    recorder.event(POD, "Normal", "Started", "x")
    await recorder.close()
    assert events(server) == [("Started", "x", 1)]


async def test_events_of_cluster_scoped_objects_go_to_default(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    recorder.event(Node(metadata=ObjectMeta(name="n")), "Normal", "Ready", "x")
    await recorder.close()
    (seen,) = server.requests
    assert seen.path == "/api/v1/namespaces/default/events"


async def test_what_cannot_be_written_is_dropped_and_counted(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(403))
    recorder = Recorder(client, "test")
    with captured_lines():
        recorder.event(POD, "Normal", "Started", "lost")
        recorder.event(POD, "Normal", "Started", "kept")
        await recorder.close()
    assert events(server) == [("Started", "kept", 1)]
    assert client.metrics.registry.get_sample_value("argosy_events_dropped_total") == 1


async def test_a_server_that_is_away_for_a_moment_loses_no_event(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(500))
    recorder = Recorder(client, "test")
    recorder.event(POD, "Normal", "Started", "kept")
    await recorder.close()
    assert events(server) == [("Started", "kept", 1)]


async def test_long_names_and_messages_are_cut_to_what_the_api_takes(
    client: Client, server: FakeServer
) -> None:
    recorder = Recorder(client, "test")
    pod = Pod(metadata=ObjectMeta(name="p" * 253, namespace="default"))
    recorder.event(pod, "Normal", "Started", "m" * 5000)
    await recorder.close()
    (event,) = server.objects("events")
    meta, message = event["metadata"], event["message"]
    assert isinstance(meta, dict)
    assert isinstance(message, str)
    assert len(meta["name"]) <= 253
    assert len(message) == 1024


def test_outside_of_a_loop_nothing_is_raised() -> None:
    recorder = Recorder(Client(Connection("http://127.0.0.1:1")), "test")
    with captured_lines() as logs:
        recorder.event(POD, "Normal", "Started", "x")
    assert logs


async def test_nothing_is_remembered_of_an_object_that_is_gone(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    other = Pod(metadata=ObjectMeta(name="q", namespace="default", uid="u2"))
    for pod in (POD, other):
        recorder.event(pod, "Normal", "Started", "x")
    await eventually(lambda: len(recorder._written) == 2)
    recorder.forget("u1")
    assert {what.uid for what in recorder._written} == set(recorder._of) == {"u2"}
    recorder.event(other, "Normal", "Started", "x")
    await recorder.close()
    assert sorted(events(server), key=str) == [("Started", "x", 1), ("Started", "x", 2)]


async def test_what_was_noted_of_an_object_that_went_is_still_written(
    client: Client, server: FakeServer
) -> None:
    recorder = Recorder(client, "test")
    recorder.event(POD, "Normal", "Started", "its last words")
    recorder.forget("u1")
    await recorder.close()
    assert events(server) == [("Started", "its last words", 1)]
    assert not recorder._written
    assert not recorder._of


async def test_no_more_is_remembered_than_was_agreed(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test", remember=2)
    for number in range(4):
        pod = Pod(metadata=ObjectMeta(name="p", namespace="default", uid=f"u{number}"))
        recorder.event(pod, "Normal", "Started", "x")
        written = number + 1
        await eventually(lambda: len(server.objects("events")) == written)  # noqa: B023 - of this round
    assert {what.uid for what in recorder._written} == set(recorder._of) == {"u2", "u3"}
    await recorder.close()


async def test_one_tenant_with_many_events_takes_none_from_another(
    client: Client, server: FakeServer
) -> None:
    """Neither is a note of the other's dropped, nor does it wait until all of the first are written."""
    recorder = Recorder(client, "test", remember=256)
    with captured_lines() as lines:
        for number in range(10_000):
            hostile = Pod(metadata=ObjectMeta(name="p", namespace="hostile", uid=f"u{number}"))
            recorder.event(hostile, "Warning", "Failed", "it failed")
        for number in range(20):
            honest = Pod(metadata=ObjectMeta(name="q", namespace="honest", uid=f"v{number}"))
            recorder.event(honest, "Normal", "Started", "it runs")
        await recorder.close()
    told = [event["reason"] for event in server.objects("events")]
    assert told.count("Started") == 20
    assert told.count("Failed") == 32
    posts = [seen.path.split("/")[4] for seen in server.requests]
    assert posts[:50].count("honest") == 20, "they took turns"
    assert client.metrics.registry.get_sample_value("argosy_events_dropped_total") == 10_000 - 32
    assert len(lines) == 1, "of thousands that are dropped a line tells once in a while"
    assert lines[0]["of"] == "hostile"


def test_when_all_together_are_too_many_the_namespace_with_the_most_gives_way() -> None:
    pending: EventBacklog[str] = EventBacklog(total=10, per_namespace=8)
    assert [pending.add("a", f"a{number}") for number in range(9)] == [0] * 8 + [1]
    assert [pending.add("b", f"b{number}") for number in range(5)] == [0, 0, 1, 1, 1]
    assert len(pending) == 10
    assert [pending.add(f"c{number}", "c") for number in range(7)] == [1] * 7
    assert len(pending) == 10


def test_one_event_of_a_namespace_is_told_at_a_time() -> None:
    pending: EventBacklog[str] = EventBacklog(total=10, per_namespace=8)
    for namespace, item in (("a", "1"), ("a", "2"), ("a", "1"), ("b", "3")):
        pending.add(namespace, item)
    assert [pending.take() for _ in range(3)] == [("a", "1", 2), ("b", "3", 1), None]
    pending.done("a")
    assert pending.take() == ("a", "2", 1)
