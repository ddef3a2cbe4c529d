"""Answers admission webhooks about AresJobs: the defaults of a spec, and what is wrong with it.

Defaults and problems are those that a reconcile finds. A request that does not change the spec, or a job that
is being deleted, is never rejected: to delete a job or remove a finalizer, nobody has to fix it first.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from argosy.dialects.ares import spec
from argosy.dialects.ares.defaults import with_defaults
from argosy.dialects.ares.dialect import AresJobDialect
from argosy.kinds.aresjob import AresJob, AresJobSpec
from argosy.kinds.meta import ObjectMeta
from argosy.workload.model import Json, Problems

_SUFFIX = "xxxxx"
"""As long as the suffix that the API server adds to a `generateName`."""


class Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    generate_name: str = ""
    deletion_timestamp: datetime | None = None


class SubmittedJob(Struct, frozen=True):
    """A submitted object, before it is validated against its schema."""

    metadata: Meta = Meta()
    spec: object = None

    @property
    def job(self) -> AresJob:
        name = self.metadata.name or f"{self.metadata.generate_name}{_SUFFIX}"
        return AresJob(ObjectMeta(name=name), self.spec if isinstance(self.spec, dict) else {})


def problems(written: SubmittedJob, old: SubmittedJob | None = None) -> Problems | None:
    """Return why the object is rejected, or None; `old` is the stored object that it replaces."""
    if written.metadata.deletion_timestamp is not None or (old is not None and old.spec == written.spec):
        return None
    lowered = AresJobDialect().to_workload(written.job)
    return lowered if isinstance(lowered, Problems) else None


def default_patch(written: SubmittedJob) -> list[Json]:
    """Return a JSON patch that sets the defaults of the spec; none for an object that will be rejected."""
    job = written.job
    decoded = spec.read(job.spec)
    if problems(written) is not None or not isinstance(decoded, AresJobSpec):
        return []
    return list(_operations(job.spec, spec.additions(job.spec, with_defaults(decoded)), "/spec"))


def _operations(written: Json, added: Json, path: str) -> Iterator[Json]:
    for name, value in added.items():
        below, current = f"{path}/{name.replace('~', '~0').replace('/', '~1')}", written.get(name)
        if isinstance(value, Mapping) and isinstance(current, Mapping):
            yield from _operations(current, value, below)
        else:
            yield {"op": "add", "path": below, "value": value}
