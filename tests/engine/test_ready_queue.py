from argosy.engine.ready_queue import ROW, Lanes


def taken(lanes: Lanes[str]) -> list[str]:
    return [lanes.take()[0] for _ in range(len(lanes))]


def test_each_lane_is_first_come_first_served_and_the_first_goes_first() -> None:
    lanes: Lanes[str] = Lanes()
    for at, (key, first) in enumerate([("told", False), ("new", True), ("told too", False), ("lost", True)]):
        lanes.add(key, float(at), first=first)
    assert taken(lanes) == ["new", "lost", "told", "told too"]


def test_of_every_eight_keys_one_is_of_the_others() -> None:
    lanes: Lanes[str] = Lanes()
    for number in range(2 * ROW):
        lanes.add(f"new {number}", 0.0, first=True)
    for number in range(2):
        lanes.add(f"told {number}", 0.0, first=False)
    order = taken(lanes)
    assert [order.index(f"told {number}") for number in range(2)] == [ROW, 2 * ROW + 1]


def test_who_waits_with_nobody_behind_costs_the_others_no_turn() -> None:
    lanes: Lanes[str] = Lanes()
    for number in range(ROW):
        lanes.add(f"new {number}", 0.0, first=True)
    taken(lanes)
    lanes.add("new", 0.0, first=True)
    lanes.add("told", 0.0, first=False)
    assert taken(lanes) == ["new", "told"]


def test_a_key_that_is_asked_for_at_once_moves_up_and_keeps_its_time() -> None:
    lanes: Lanes[str] = Lanes()
    lanes.add("a", 1.0, first=False)
    lanes.add("b", 2.0, first=True)
    lanes.add("a", 3.0, first=True)
    lanes.add("b", 4.0, first=False)
    assert len(lanes) == 2
    assert lanes.oldest == 2.0, "the head of a lane speaks for it"
    assert [lanes.take() for _ in range(2)] == [("b", 2.0), ("a", 1.0)]
    assert lanes.oldest is None


def test_a_dropped_key_is_not_there() -> None:
    lanes: Lanes[str] = Lanes()
    lanes.add("a", 1.0, first=True)
    lanes.add("b", 1.0, first=False)
    lanes.drop("a")
    lanes.drop("b")
    lanes.drop("c")
    assert "a" not in lanes
    assert len(lanes) == 0
