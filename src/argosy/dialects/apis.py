"""The APIs that this operator speaks, by the names under which an installation chooses them."""

from collections.abc import Mapping
from typing import Final

from argosy.kinds.aresjob import AresJob
from argosy.kinds.resource import Resource
from argosy.kinds.trainingrun import TrainingRun

APIS: Final[Mapping[str, Resource]] = {"argosy": TrainingRun.resource, "ares": AresJob.resource}
