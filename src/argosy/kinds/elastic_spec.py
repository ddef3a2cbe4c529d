"""`elastic` of a role's spec, the same in every API that has it: the sizes that the role may have.

The rules are CEL, so that the API server rejects other numbers, also those of `kubectl scale` and of
autoscalers.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from argosy.kinds.crd_options import Duration, Rule, digits


def _multiple_rule(name: str) -> Rule:
    number = f"self.{name}"
    lower = f"({number} / self.multipleOf * self.multipleOf)"
    upper = f"({lower} + self.multipleOf)"
    below = f"{number} < self.multipleOf ? '' : {digits(lower)} + ' or '"
    return Rule(
        rule=f"{number} % self.multipleOf == 0",
        message=f"{name} is not a multiple of multipleOf",
        message_expression=(
            f"'{name} ' + {digits(number)} + ' is not a multiple of ' + {digits('self.multipleOf')}"
            f" + '; write ' + ({below}) + {digits(upper)}"
        ),
    )


class ElasticSpec(Struct, frozen=True, rename="camel"):
    """The range in which the role's number of pods may change while it runs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.min <= self.max",
            message="min is greater than max",
            message_expression=f"'min ' + {digits('self.min')} + ' is greater than max '"
            f" + {digits('self.max')}",
        ),
        _multiple_rule("min"),
        _multiple_rule("max"),
    )

    min: Annotated[int, Meta(ge=1, le=99_999)]
    """Minimum number of pods with which training continues."""
    max: Annotated[int, Meta(ge=1, le=99_999)]
    """Maximum number of pods of the role."""
    multiple_of: Annotated[int, Meta(ge=1, le=1000)] = 1
    """The number of pods is always a multiple of this."""
    stabilization_window: Duration = "30s"
    """A pod that cannot be scheduled for this long no longer counts as part of the role. A role that loses
    pods soon after it has grown grows again after this time, which doubles with each repetition."""


def replicas_rules(replicas: str) -> tuple[Rule, ...]:
    """Return the rules of a struct with `elastic` and a number of replicas, given as a CEL expression."""
    return (
        Rule(
            rule=f"!has(self.elastic) || {replicas} >= self.elastic.min",
            message="replicas is less than elastic.min",
            message_expression=f"'replicas ' + {digits(replicas)} + ' is less than elastic.min '"
            f" + {digits('self.elastic.min')}",
        ),
        Rule(
            rule=f"!has(self.elastic) || {replicas} <= self.elastic.max",
            message="replicas is greater than elastic.max",
            message_expression=f"'replicas ' + {digits(replicas)} + ' is greater than elastic.max '"
            f" + {digits('self.elastic.max')}",
        ),
        Rule(
            rule=f"!has(self.elastic) || {replicas} % self.elastic.multipleOf == 0",
            message="replicas is not a multiple of elastic.multipleOf",
            message_expression=f"'replicas ' + {digits(replicas)} + ' is not a multiple of '"
            f" + {digits('self.elastic.multipleOf')}",
        ),
    )
