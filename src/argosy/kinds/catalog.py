"""The kinds of which Argosy brings the definition, and where the written definitions are."""

from argosy.kinds.aresjob import AresJobKind
from argosy.kinds.crd_options import Defined
from argosy.kinds.trainingrun import TrainingRun
from argosy.kinds.volcano import PodGroupKind

OURS: tuple[type[Defined], ...] = (TrainingRun, AresJobKind, PodGroupKind)
