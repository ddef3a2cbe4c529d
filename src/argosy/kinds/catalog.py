"""The kinds of which Argosy brings the definition, and where the written definitions are."""

from argosy.kinds.aresjob import AresJobCrd
from argosy.kinds.crd_options import CustomResource
from argosy.kinds.trainingrun import TrainingRun
from argosy.kinds.volcano import VolcanoPodGroupCrd

CUSTOM_RESOURCES: tuple[type[CustomResource], ...] = (TrainingRun, AresJobCrd, VolcanoPodGroupCrd)
