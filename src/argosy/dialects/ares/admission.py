"""What an admission webhook answers about an AresJob: its defaults, and what is wrong with it.

The same defaults and the same problems as a pass finds, in the same words. What does not change the spec, or
is on its way out, is never held up: whoever deletes a job or takes a finalizer away need not mend it first.
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
"""As long as what the API server will add to a `generateName`."""


class Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    generate_name: str = ""
    deletion_timestamp: datetime | None = None


class Written(Struct, frozen=True):
    """An object as somebody wants it stored; nobody has looked at its schema yet."""

    metadata: Meta = Meta()
    spec: object = None

    @property
    def job(self) -> AresJob:
        name = self.metadata.name or f"{self.metadata.generate_name}{_SUFFIX}"
        return AresJob(ObjectMeta(name=name), self.spec if isinstance(self.spec, dict) else {})


def problems(written: Written, old: Written | None = None) -> Problems | None:
    """Why it is to be refused; `old` is what it takes the place of."""
    if written.metadata.deletion_timestamp is not None or (old is not None and old.spec == written.spec):
        return None
    lowered = AresJobDialect().to_workload(written.job)
    return lowered if isinstance(lowered, Problems) else None


def additions(written: Written) -> list[Json]:
    """A JSON patch that brings the spec to the one in force; nothing for one that will be refused."""
    job = written.job
    given = spec.read(job.spec)
    if problems(written) is not None or not isinstance(given, AresJobSpec):
        return []
    return list(_operations(job.spec, spec.additions(job.spec, with_defaults(given)), "/spec"))


def _operations(written: Json, added: Json, path: str) -> Iterator[Json]:
    for name, value in added.items():
        below, there = f"{path}/{name.replace('~', '~0').replace('/', '~1')}", written.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            yield from _operations(there, value, below)
        else:
            yield {"op": "add", "path": below, "value": value}
