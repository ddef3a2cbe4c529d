from argosy.engine.ready_queue import MAX_IMMEDIATE_RUN, ReadyQueue


def drain(queue: ReadyQueue[str]) -> list[str]:
    return [queue.take()[0] for _ in range(len(queue))]


def test_immediate_keys_go_first_and_each_class_is_first_in_first_out() -> None:
    queue: ReadyQueue[str] = ReadyQueue()
    keys = [("deferred 1", False), ("new 1", True), ("deferred 2", False), ("new 2", True)]
    for at, (key, immediate) in enumerate(keys):
        queue.add(key, float(at), immediate=immediate)
    assert drain(queue) == ["new 1", "new 2", "deferred 1", "deferred 2"]


def test_one_of_every_eight_keys_is_a_deferred_one() -> None:
    queue: ReadyQueue[str] = ReadyQueue()
    for number in range(2 * MAX_IMMEDIATE_RUN):
        queue.add(f"new {number}", 0.0, immediate=True)
    for number in range(2):
        queue.add(f"deferred {number}", 0.0, immediate=False)
    order = drain(queue)
    assert order.index("deferred 0") == MAX_IMMEDIATE_RUN
    assert order.index("deferred 1") == 2 * MAX_IMMEDIATE_RUN + 1


def test_immediate_keys_taken_while_no_deferred_key_waits_do_not_count_for_the_ratio() -> None:
    queue: ReadyQueue[str] = ReadyQueue()
    for number in range(MAX_IMMEDIATE_RUN):
        queue.add(f"new {number}", 0.0, immediate=True)
    drain(queue)
    queue.add("new", 0.0, immediate=True)
    queue.add("deferred", 0.0, immediate=False)
    assert drain(queue) == ["new", "deferred"]


def test_deferred_key_added_as_immediate_moves_up_and_keeps_its_time() -> None:
    queue: ReadyQueue[str] = ReadyQueue()
    queue.add("a", 1.0, immediate=False)
    queue.add("b", 2.0, immediate=True)
    queue.add("a", 3.0, immediate=True)
    queue.add("b", 4.0, immediate=False)
    assert len(queue) == 2
    assert queue.oldest == 2.0, "only the first key of each class is looked at"
    assert [queue.take() for _ in range(2)] == [("b", 2.0), ("a", 1.0)]
    assert queue.oldest is None


def test_discarded_keys_are_no_longer_in_the_queue() -> None:
    queue: ReadyQueue[str] = ReadyQueue()
    queue.add("a", 1.0, immediate=True)
    queue.add("b", 1.0, immediate=False)
    for key in ("a", "b", "never added"):
        queue.discard(key)
    assert "a" not in queue
    assert len(queue) == 0
