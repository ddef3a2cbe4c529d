"""The benchmark of machines runs on a small scale, yields all its figures, and leaves the collector alone."""

import gc

from bench.machines import Life, Sizes, measure_with


def test_every_figure_is_measured() -> None:
    thresholds = gc.get_threshold()
    figures = {figure.name: figure for figure in measure_with(Sizes(machines=10, requests_per_kill=100))}
    assert figures.keys() == {"machines_reconcile_max_ms", "machines_reconcile_p50_ms", "machines_leaked"}
    assert figures["machines_reconcile_max_ms"].value > figures["machines_reconcile_p50_ms"].value > 0
    assert figures["machines_reconcile_p50_ms"].bound > 0
    assert figures["machines_leaked"].value == 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, 0)


async def test_machine_that_is_left_counts_as_leaked() -> None:
    life = Life(Sizes(machines=2, requests_per_kill=10_000))
    await life.run()
    assert life.leaked() == 0
    body = {"name": "vm-9", "machineType": "x", "scheduling": {}}
    life.world.cloud.insert("p", "us-central1-a", body, "another-request")
    assert life.leaked() == 2, "it is there, and no Record has named it"
