"""Which statuses of a Job are refused: those that contradict themselves, the spec, or what was said before.

As in Kubernetes, a contradiction counts only when a part of it changes, so that a status that is wrong
already can still be written, and mended.
"""

from collections.abc import Iterator

from msgspec import Struct

from argosy.local.schema.errors import OMITTED, FieldError, Ordered, duplicate, invalid, required
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import part, parts, strings, text
from argosy.local.schema.validation.job import index_errors

CONDITIONS = "status.conditions"


class _State(Struct, frozen=True):
    """What the rules look at."""

    complete: bool
    failed: bool
    failing: bool
    met: bool
    completed_indexes: str
    failed_indexes: object
    active: int
    ready: int
    terminating: int
    start: str
    end: str
    uncounted: tuple[str, ...]

    @property
    def finished(self) -> bool:
        return self.complete or self.failed

    @classmethod
    def of(cls, job: Json) -> "_State":
        status = part(job, "status")
        true = {text(each, "type") for each in parts(status, "conditions") if text(each, "status") == "True"}
        uncounted = part(status, "uncountedTerminatedPods")
        return cls(
            complete="Complete" in true,
            failed="Failed" in true,
            failing="FailureTarget" in true,
            met="SuccessCriteriaMet" in true,
            completed_indexes=text(status, "completedIndexes"),
            failed_indexes=status.get("failedIndexes"),
            active=_count(status, "active"),
            ready=_count(status, "ready"),
            terminating=_count(status, "terminating"),
            start=text(status, "startTime"),
            end=text(status, "completionTime"),
            uncounted=(*strings(uncounted, "succeeded"), *strings(uncounted, "failed")),
        )


def job_status_errors(new: Json, old: Json) -> Iterator[FieldError]:
    now, before = _State.of(new), _State.of(old)
    yield from _counts(part(new, "status"))
    yield from _conditions(now, before)
    yield from _times(now, before, part(new, "spec"))
    yield from _finished(now, before, new)
    yield from _indexes(now, before, part(new, "spec"))
    yield from _steps_back(new, old, now, before)


def _changed(now: _State, before: _State, *fields: str) -> bool:
    return any(getattr(now, field) != getattr(before, field) for field in fields)


def _counts(status: Json) -> Iterator[FieldError]:
    for field in ("active", "succeeded", "failed", "ready", "terminating"):
        if _count(status, field) < 0:
            yield invalid(f"status.{field}", _count(status, field), "must be greater than or equal to 0")
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        for number, uid in enumerate(strings(status, "uncountedTerminatedPods", field)):
            where = f"status.uncountedTerminatedPods.{field}[{number}]"
            if not uid:
                yield invalid(where, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(where, uid)
            seen.add(uid)


def _conditions(now: _State, before: _State) -> Iterator[FieldError]:
    for first, second, told, found in (
        ("complete", "failed", "cannot set Complete=True and Failed=true conditions", True),
        ("complete", "failing", "cannot set Complete=True and FailureTarget=true conditions", True),
        (
            "failed",
            "failing",
            "cannot set Failed=True condition without the FailureTarget=true condition",
            False,
        ),
        (
            "complete",
            "met",
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            False,
        ),
    ):
        fields = (first, "failed_indexes") if first == "failed" else (first, second)
        both = getattr(now, first) and getattr(now, second) is found
        if both and _changed(now, before, *fields):
            yield invalid(CONDITIONS, OMITTED, told)
    if now.met and now.failed:
        yield invalid(CONDITIONS, OMITTED, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if now.met and now.failing:
        told = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"
        yield invalid(CONDITIONS, OMITTED, told)


def _times(now: _State, before: _State, spec: Json) -> Iterator[FieldError]:
    where = "status.completionTime"
    if _changed(now, before, "complete", "end"):
        if now.end and not now.complete:
            told = "cannot set completionTime when there is no Complete=True condition"
            yield invalid(where, now.end, told)
        if now.complete and not now.end:
            yield required(where, "completionTime is required for Complete jobs")
    if now.start and now.end and now.end < now.start and _changed(now, before, "start", "end"):
        yield invalid(where, now.end, "must be equal to or after `startTime`")
    nothing_to_do = spec.get("suspend") is True and spec.get("completions") == 0
    if now.finished and not now.start and not nothing_to_do and _changed(now, before, "finished", "start"):
        yield required("status.startTime", "startTime is required for finished job")


def _finished(now: _State, before: _State, new: Json) -> Iterator[FieldError]:
    if now.finished and now.active > 0 and _changed(now, before, "finished", "active"):
        yield invalid("status.active", now.active, "active>0 is invalid for finished job")
    if now.finished and now.terminating > 0 and _changed(now, before, "finished", "terminating"):
        yield invalid("status.terminating", now.terminating, "terminating>0 is invalid for finished job")
    if now.finished and now.uncounted and _changed(now, before, "finished", "uncounted"):
        pods = part(new, "status", "uncountedTerminatedPods")
        shown = Ordered(Succeeded=pods.get("succeeded"), Failed=pods.get("failed"))
        yield invalid("status.uncountedTerminatedPods", shown, "must be empty for finished job")
    if now.ready > max(now.active, 0) and _changed(now, before, "ready", "active"):
        yield invalid("status.ready", now.ready, "cannot set more ready pods than active")


def _indexes(now: _State, before: _State, spec: Json) -> Iterator[FieldError]:
    completions, by_index = spec.get("completions"), spec.get("backoffLimitPerIndex") is not None
    completed, failed = now.completed_indexes, now.failed_indexes
    limit = completions if isinstance(completions, int) else None
    if _changed(now, before, "completed_indexes"):
        if limit is not None and (problem := index_errors(completed, limit)[1]):
            yield invalid("status.completedIndexes", completed, f"error parsing completedIndexes: {problem}")
        if completed and spec.get("completionMode") != "Indexed":
            told = "cannot set non-empty completedIndexes when non-indexed completion mode"
            yield invalid("status.completedIndexes", completed, told)
    if not isinstance(failed, str):
        return
    where = "status.failedIndexes"
    if _changed(now, before, "failed_indexes"):
        if by_index and limit is not None and (problem := index_errors(failed, limit)[1]):
            yield invalid(where, failed, f"error parsing failedIndexes: {problem}")
        if not by_index:
            told = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            yield invalid(where, failed, told)
    both = sorted(_named(completed, limit) & _named(failed, limit))
    if both and _changed(now, before, "failed_indexes", "completed_indexes"):
        yield invalid(where, failed, f"failedIndexes and completedIndexes overlap at index: {both[0]}")


def _steps_back(new: Json, old: Json, now: _State, before: _State) -> Iterator[FieldError]:
    for name, was, is_now in (
        ("Failed", before.failed, now.failed),
        ("Complete", before.complete, now.complete),
        ("FailureTarget", before.failing, now.failing),
    ):
        if was and not is_now:
            yield invalid(CONDITIONS, OMITTED, f"cannot disable the terminal {name}=True condition")
    spec, status, was_status = part(new, "spec"), part(new, "status"), part(old, "status")
    scalable = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for field in ("failed", "succeeded"):
        lower = _count(status, field) < _count(was_status, field)
        if lower and not (field == "succeeded" and scalable):
            yield invalid(f"status.{field}", _count(status, field), f"cannot decrease the {field} counter")
    if now.end and before.end and now.end != before.end:
        yield invalid("status.completionTime", now.end, "field is immutable")
    if before.start and now.start != before.start and not spec.get("suspend") and not _resuming(new, old):
        told = "field is immutable for unsuspended job once set"
        yield invalid("status.startTime", now.start or None, told)
    if before.met and not now.met:
        yield invalid(CONDITIONS, OMITTED, "cannot disable the SuccessCriteriaMet=True condition")
    if before.complete and not before.met and now.met:
        told = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        yield invalid(CONDITIONS, OMITTED, told)


def _resuming(new: Json, old: Json) -> bool:
    return _suspended(old) == "True" and _suspended(new) == "False"


def _suspended(job: Json) -> str:
    conditions = parts(job, "status", "conditions")
    return next((text(each, "status") for each in conditions if text(each, "type") == "Suspended"), "")


def _named(indexes: str, limit: int | None) -> set[int]:
    if limit is None or index_errors(indexes, limit)[1]:
        return set()
    named: set[int] = set()
    for piece in indexes.split(",") if indexes else ():
        first, _, last = piece.partition("-")
        named.update(range(int(first), int(last or first) + 1))
    return named


def _count(status: Json, field: str) -> int:
    value = status.get(field)
    return value if isinstance(value, int) else 0
