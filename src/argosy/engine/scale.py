"""`autoscaling/v1` Scale: the one shape in which every scalable kind shows its replica count."""

from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource


class ScaleSpec(Struct, gc=False):
    replicas: int = 0


class ScaleStatus(Struct, gc=False):
    replicas: int = 0
    selector: str = ""


class Scale(Struct):
    resource: ClassVar[Resource] = Resource("autoscaling", "v1", "Scale", "scales")

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ScaleSpec = field(default_factory=ScaleSpec)
    status: ScaleStatus = field(default_factory=ScaleStatus)
