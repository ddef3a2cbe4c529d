"""Names of archives."""

from datetime import UTC, datetime, timedelta

import pytest

from argosy.checkpoint.archives import ContainerName, archive_time

MAIN = ContainerName("research", "train-0", "main")
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)

NAMES = {
    "in UTC": ("checkpoint-train-0_research-main-2026-03-01T12:00:00Z.tar", AT),
    "in another zone": (
        "checkpoint-train-0_research-main-2026-03-01T12:00:00+02:00.tar",
        AT - timedelta(hours=2),
    ),
    "container whose name begins alike": (
        "checkpoint-train-0_research-main-2-2026-03-01T12:00:00Z.tar",
        None,
    ),
    "other namespace": ("checkpoint-train-0_prod-main-2026-03-01T12:00:00Z.tar", None),
    "other pod": ("checkpoint-train-01_research-main-2026-03-01T12:00:00Z.tar", None),
    "without a zone": ("checkpoint-train-0_research-main-2026-03-01T12:00:00.tar", None),
    "not finished": ("checkpoint-train-0_research-main-2026-03-01T12:00:00Z.tar.tmp", None),
    "folder in the name": ("../checkpoint-train-0_research-main-2026-03-01T12:00:00Z.tar", None),
}


@pytest.mark.parametrize("case", NAMES)
def test_time_in_the_name_of_an_archive(case: str) -> None:
    name, want = NAMES[case]
    assert archive_time(name, MAIN) == want
