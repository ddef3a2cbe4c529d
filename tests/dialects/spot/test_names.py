"""Names of what belongs to a SpotInstanceJob are valid, and different for different things."""

import re

import pytest

from argosy.dialects.spot import names

VALID = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
UNIX = 1767225600


@pytest.mark.parametrize("job", ["a", "1-digit", "with.dots.in.it", "x" * 63, "x" * 200, "a-" * 60 + "b"])
def test_names_of_jobs_and_vms_are_valid_dns_labels_that_end_in_index_and_stamp(job: str) -> None:
    for name in (names.job_name(job, 12, UNIX), names.instance_name(job, "t" * 50, 12, UNIX)):
        assert len(name) <= 63
        assert VALID.fullmatch(name)
        assert name.endswith(f"-12-{UNIX}")


def test_what_is_cut_differs_by_its_hash() -> None:
    first, second = (names.job_name("x" * 80 + end, 0, UNIX) for end in "ab")
    assert first != second
    assert re.fullmatch(rf"x+-[0-9a-f]{{8}}-0-{UNIX}", first)


def test_short_names_stay_as_they_are() -> None:
    assert names.job_name("job", 0, 7) == "job-0-7"
    assert names.instance_name("job", "vm", 0, 7) == "job-vm-0-7"
    assert names.job_name("1.2", 0, 7) == "s-1-2-0-7"
    assert names.backup_name("job", "pod", 7) == "job-pod-7"
    assert names.label_value("x" * 63) == "x" * 63
    assert len(names.label_value("x" * 64)) == 63
    assert len(names.backup_name("j" * 200, "p" * 200, 7)) == 253
