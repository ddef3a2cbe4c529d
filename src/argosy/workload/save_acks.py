"""Reads and writes what a pod acknowledges of its checkpoints: the annotations that a replica sets on it.

They are written for pods that proved whose they are, but users may change annotations of their own pods. So
whatever cannot be read counts as no acknowledgement, and all numbers have bounds.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from argosy.workload.checkpoint_record import SavedCheckpoint

MAX_ANNOTATION_CHARS: Final = 1024
MAX_NUMBER: Final = 2**53
MAX_STEP_CHARS: Final = 16
DIGEST_PATTERN: Final = r"^sha256:[0-9a-f]{64}$"

_DIGEST = re.compile(DIGEST_PATTERN)

Number = Annotated[int, Meta(ge=0, lt=MAX_NUMBER)]


class CheckpointAck(Struct, frozen=True):
    """A complete checkpoint, as the sidecar of a pod reports it."""

    step: Number
    digest: Annotated[str, Meta(pattern=DIGEST_PATTERN, max_length=80)]
    created: datetime
    epoch: Number = 0
    world: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    size: Number = 0
    seconds: Annotated[float, Meta(ge=0, le=1e7)] = 0.0


class StepReport(Struct, frozen=True):
    """The step that the program of a pod has reached, as its sidecar reports it from time to time."""

    step: Number


def write_ack(ack: CheckpointAck) -> str:
    """Return the annotation for an acknowledgement."""
    return msgspec.json.encode(ack).decode()


def read_ack(annotation: str) -> SavedCheckpoint | None:
    """Return the checkpoint that an annotation names; None if there is none, or none that can be read."""
    if not annotation or len(annotation) > MAX_ANNOTATION_CHARS:
        return None
    try:
        ack = msgspec.json.decode(annotation, type=CheckpointAck)
        created = ack.created.astimezone(UTC).replace(microsecond=0)
    except (msgspec.MsgspecError, RecursionError, OverflowError, ValueError):
        return None
    if ack.created.tzinfo is None:
        return None
    return SavedCheckpoint(
        step=ack.step,
        digest=ack.digest,
        at=created,
        size=ack.size,
        world=ack.world,
        seconds=ack.seconds,
        epoch=ack.epoch,
    )


def read_step(annotation: str) -> int | None:
    """Return the step that a pod has reported last; None if it has reported none."""
    is_number = annotation.isascii() and annotation.isdecimal() and len(annotation) <= MAX_STEP_CHARS
    return int(annotation) if is_number else None


def write_resumed(step: int, digest: str) -> str:
    """Return the annotation of a pod that has started from a checkpoint."""
    return f"{step} {digest}"


def read_resumed(annotation: str) -> int | None:
    """Return the step from which a pod has started; None if it does not say."""
    step, _, digest = annotation.partition(" ")
    return read_step(step) if _DIGEST.fullmatch(digest) else None
