"""Completion indexes as Kubernetes writes them in a Job's status: `0-2,5,7,8`."""

from collections.abc import Iterable

from argosy.local.controllers.api_types import Pod

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def completion_index(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(COMPLETION_INDEX, "")
    return int(text) if text.isdecimal() else None


def parse_indexes(text: str) -> set[int]:
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(indexes: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(_format_run(run) for run in runs)


def _format_run(run: list[int]) -> str:
    """Format consecutive indexes: two are listed, three or more become a range."""
    return ",".join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}"
