"""Defines where a job keeps its checkpoints, and when one is ordered."""

from msgspec import Struct

from argosy.kinds.checkpoint_spec import CheckpointImages, CheckpointLevel, CheckpointSpec
from argosy.kinds.quantity import parse_duration

SHARED_SCHEMES = ("pvc", "file")
"""Stores that pods mount: a program writes its checkpoints there itself. They are published to all others."""
MAX_SECONDS = 365 * 86_400.0
"""A longer time has the same effect, and may end after the last day of the calendar."""


class ImageTarget(Struct, frozen=True):
    """Where images of processes are pushed."""

    registry: str
    repository: str
    secret: str = ""
    """Name of a Secret in the job's namespace; empty: none."""


class CheckpointPolicy(Struct, frozen=True):
    """The checkpoints of one job."""

    uri: str
    """The folder of this job's checkpoints in the store."""
    keep_last: int = 3
    interval: float | None = None
    """Seconds; None: checkpoints are ordered only before announced losses."""
    adaptive: bool = False
    """The interval may be shorter, as `save_intervals` computes it."""
    suspend_grace: float = 120.0
    """Seconds that a checkpoint may take before the job is suspended or resized, or replicas leave it."""

    holds_evictions: bool = False
    """Whether pods are not evicted before a checkpoint is saved, and a cordon announces a drain."""
    credentials: str = ""
    """Name of a Secret in the job's namespace; empty: none."""
    level: CheckpointLevel = CheckpointLevel.APP
    saves_on_signal: bool = False
    """Whether the program saves when it gets SIGTERM, and is not ordered to."""
    copy: str = ""
    """Name of the pod's folder below that of the job, in a job whose pods are independent copies of one
    program; empty: all pods write into the folder of the job."""
    starts_without_store: bool = False
    """Whether a pod starts from the beginning if the store cannot be used, because nothing was ever saved."""
    images: ImageTarget | None = None
    """Of the levels Process and auto."""

    @property
    def is_kept_by_program(self) -> bool:
        """True if the program may save checkpoints, and its pods have what it needs for that."""
        return self.level is not CheckpointLevel.PROCESS

    @property
    def is_shared(self) -> bool:
        """True if all pods of the job see the same folder."""
        return self.scheme in SHARED_SCHEMES

    @property
    def scheme(self) -> str:
        return self.uri.partition("://")[0]

    @property
    def own_uri(self) -> str:
        """The folder to which a pod saves."""
        return f"{self.uri}/{self.copy}" if self.copy else self.uri


def checkpoint_policy(spec: CheckpointSpec, namespace: str, name: str, uid: str) -> CheckpointPolicy:
    """Return the policy of a job. Its folder has a part of its uid: a later job of its name has another."""
    return CheckpointPolicy(
        uri=f"{spec.store.rstrip('/')}/{namespace}/{name}-{uid[:8]}" if spec.store else "",
        keep_last=spec.keep_last,
        interval=_seconds(spec.interval) if spec.interval else None,
        adaptive=spec.mode == "Adaptive",
        suspend_grace=_seconds(spec.suspend_grace),
        holds_evictions=spec.on_drain == "Save",
        credentials=spec.credentials,
        level=spec.level,
        saves_on_signal=spec.signal is not None,
        images=_image_target(spec.images) if spec.images else None,
    )


def _seconds(duration: str) -> float:
    return min(parse_duration(duration), MAX_SECONDS)


def _image_target(images: CheckpointImages) -> ImageTarget:
    registry, _, repository = images.repository.partition("/")
    return ImageTarget(registry, repository, images.secret)
