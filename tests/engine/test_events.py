from argosy.engine.client import Client
from argosy.engine.event_backlog import EventBacklog
from argosy.engine.events import LOG_INTERVAL, Recorder
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.meta import ObjectMeta
from tests.support.captured_logs import captured_lines
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually

POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="u1"))


def events(server: FakeServer) -> list[tuple[object, object, object]]:
    return [(event["reason"], event["message"], event["count"]) for event in server.objects("events")]


async def test_event_refers_to_its_object(client: Client, server: FakeServer) -> None:
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


async def test_repeated_event_increases_the_count(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    for _ in range(3):
        recorder.event(POD, "Normal", "Started", "again")
    await eventually(lambda: events(server) == [("Started", "again", 3)])
    for _ in range(2):
        recorder.event(POD, "Normal", "Started", "again")
    recorder.event(POD, "Normal", "Started", "otherwise")
    await recorder.close()
    assert sorted(events(server), key=str) == [("Started", "again", 5), ("Started", "otherwise", 1)]


async def test_repeated_event_is_created_again_if_it_was_deleted(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    recorder.event(POD, "Normal", "Started", "x")
    await eventually(lambda: len(server.objects("events")) == 1)
    meta = server.objects("events")[0]["metadata"]
    assert isinstance(meta, dict)
    await server.remove("events", "default", meta["name"])
    recorder.event(POD, "Normal", "Started", "x")
    await recorder.close()
    assert events(server) == [("Started", "x", 1)]


async def test_events_of_cluster_scoped_objects_are_in_default(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    recorder.event(Node(metadata=ObjectMeta(name="n")), "Normal", "Ready", "x")
    await recorder.close()
    (request,) = server.requests
    assert request.path == "/api/v1/namespaces/default/events"


async def test_forbidden_event_is_dropped_and_counted(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(403))
    recorder = Recorder(client, "test")
    with captured_lines():
        recorder.event(POD, "Normal", "Started", "lost")
        recorder.event(POD, "Normal", "Started", "kept")
        await recorder.close()
    assert events(server) == [("Started", "kept", 1)]
    assert client.metrics.registry.get_sample_value("argosy_events_dropped_total") == 1


async def test_event_is_retried_after_a_server_error(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(500))
    recorder = Recorder(client, "test")
    recorder.event(POD, "Normal", "Started", "kept")
    await recorder.close()
    assert events(server) == [("Started", "kept", 1)]


async def test_long_names_and_messages_are_cut_to_the_limits_of_the_api(
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


def test_event_without_an_event_loop_is_logged_and_does_not_raise() -> None:
    recorder = Recorder(Client(Connection("http://127.0.0.1:1")), "test")
    with captured_lines() as logs:
        recorder.event(POD, "Normal", "Started", "x")
    assert logs


async def test_forget_drops_the_written_events_of_an_object(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test")
    other = Pod(metadata=ObjectMeta(name="q", namespace="default", uid="u2"))
    for pod in (POD, other):
        recorder.event(pod, "Normal", "Started", "x")
    await eventually(lambda: len(recorder._written) == 2)
    recorder.forget("u1")
    assert {key.uid for key in recorder._written} == set(recorder._keys_by_uid) == {"u2"}
    recorder.event(other, "Normal", "Started", "x")
    await recorder.close()
    assert sorted(events(server), key=str) == [("Started", "x", 1), ("Started", "x", 2)]


async def test_queued_event_of_a_forgotten_object_is_still_written(
    client: Client, server: FakeServer
) -> None:
    recorder = Recorder(client, "test")
    recorder.event(POD, "Normal", "Started", "last event")
    recorder.forget("u1")
    await recorder.close()
    assert events(server) == [("Started", "last event", 1)]
    assert not recorder._written
    assert not recorder._keys_by_uid


async def test_remembered_events_are_bounded(client: Client, server: FakeServer) -> None:
    recorder = Recorder(client, "test", max_remembered=2)
    for number in range(4):
        pod = Pod(metadata=ObjectMeta(name="p", namespace="default", uid=f"u{number}"))
        recorder.event(pod, "Normal", "Started", "x")
        written = number + 1
        await eventually(lambda: len(server.objects("events")) == written)  # noqa: B023 - the lambda is called in this iteration
    await eventually(lambda: {key.uid for key in recorder._written} == {"u2", "u3"})
    assert set(recorder._keys_by_uid) == {"u2", "u3"}
    await recorder.close()


async def test_namespace_with_many_events_neither_drops_nor_delays_those_of_another(
    client: Client, server: FakeServer
) -> None:
    """10,000 events of one namespace are cut down to its limit; 20 of another are all written, in turn."""
    recorder = Recorder(client, "test", max_remembered=256)
    with captured_lines() as lines:
        for number in range(10_000):
            busy = Pod(metadata=ObjectMeta(name="p", namespace="busy", uid=f"u{number}"))
            recorder.event(busy, "Warning", "Failed", "it failed")
        for number in range(20):
            quiet = Pod(metadata=ObjectMeta(name="q", namespace="quiet", uid=f"v{number}"))
            recorder.event(quiet, "Normal", "Started", "it runs")
        await recorder.close()
    reasons = [event["reason"] for event in server.objects("events")]
    assert reasons.count("Started") == 20
    assert reasons.count("Failed") == 32
    posts = [request.path.split("/")[4] for request in server.requests]
    assert posts[:50].count("quiet") == 20, "namespaces take turns"
    assert client.metrics.registry.get_sample_value("argosy_events_dropped_total") == 10_000 - 32
    assert len(lines) == 1, "dropped events are logged once a minute"
    assert lines[0]["namespace"] == "busy"


async def test_events_dropped_from_a_full_backlog_are_counted_and_logged_once_per_interval(
    client: Client,
) -> None:
    clock = ManualClock()
    recorder = Recorder(client, "test", clock=clock, max_remembered=8)  # one event per namespace

    def drop(count: int) -> None:
        """Record so many events more than fit, without letting the recorder write any."""
        for number in range(count + 1):
            recorder.event(POD, "Normal", "Started", f"message {clock.seconds} {number}")

    with captured_lines() as lines:
        drop(3)
        assert [(line["event"], line["count"]) for line in lines] == [("events dropped", 1)]
        await recorder.close()
        clock.advance(LOG_INTERVAL + 1)
        drop(2)
        await recorder.close()
    assert [line["count"] for line in lines] == [1, 3], "with those that were not logged before"
    assert {line["error"] for line in lines} == {"the backlog is full"}
    assert client.metrics.registry.get_sample_value("argosy_events_dropped_total") == 5


def test_backlog_at_its_total_limit_drops_from_the_largest_namespace() -> None:
    backlog: EventBacklog[str] = EventBacklog(total_limit=10, namespace_limit=8)
    assert [backlog.add("a", f"a{number}") for number in range(9)] == [0] * 8 + [1]
    assert [backlog.add("b", f"b{number}") for number in range(5)] == [0, 0, 1, 1, 1]
    assert len(backlog) == 10
    assert [backlog.add(f"c{number}", "c") for number in range(7)] == [1] * 7
    assert len(backlog) == 10


def test_backlog_returns_one_item_per_namespace_until_done() -> None:
    backlog: EventBacklog[str] = EventBacklog(total_limit=10, namespace_limit=8)
    for namespace, item in (("a", "1"), ("a", "2"), ("a", "1"), ("b", "3")):
        backlog.add(namespace, item)
    assert [backlog.take() for _ in range(3)] == [("a", "1", 2), ("b", "3", 1), None]
    backlog.done("a")
    assert backlog.take() == ("a", "2", 1)
