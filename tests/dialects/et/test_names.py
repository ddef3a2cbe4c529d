import pytest

from argosy.dialects.et.names import scaler_reference, worker_index, worker_name, worker_selector

INDEXES: dict[str, tuple[str, int | None]] = {
    "name of a worker: its index": ("j-worker-0", 0),
    "name of worker 10: not that of worker 1": ("j-worker-10", 10),
    "name of the launcher: none": ("j-launcher", None),
    "worker of another job: none": ("jj-worker-0", None),
    "worker of a job whose name continues: none": ("j-worker-1-worker-0", None),
    "index with a leading zero: none": ("j-worker-01", None),
    "negative index: none": ("j-worker--1", None),
    "no index: none": ("j-worker-", None),
    "letters as index: none": ("j-worker-a", None),
    "digits of another script: none": ("j-worker-٣", None),
    "index of a hundred digits: none": ("j-worker-" + "9" * 100, None),
}


@pytest.mark.parametrize(("name", "want"), INDEXES.values(), ids=INDEXES.keys())
def test_index_of_a_worker_by_its_name(name: str, want: int | None) -> None:
    assert worker_index("j", name) == want
    if want is not None:
        assert worker_name("j", want) == name


def test_names_in_the_status() -> None:
    assert worker_selector("j") == "training-job-name=j,training-job-role=worker"
    assert scaler_reference("ScaleIn", "default", "s") == "ScaleIn:default/s"
