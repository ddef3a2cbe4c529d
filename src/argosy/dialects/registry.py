"""The dialects that this operator speaks."""

from argosy.dialects.trainingrun import TrainingRunDialect


def built_in_dialects() -> tuple[TrainingRunDialect, ...]:
    return (TrainingRunDialect(),)
