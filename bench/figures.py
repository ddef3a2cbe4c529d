"""A measured figure with its bound and target.

A time on a shared machine means little by itself. Every figure therefore has a bound: the same work without
Argosy, measured in the same run. Only the ratio of the two can be compared between machines.
"""

from typing import Literal

from msgspec import Struct


class Figure(Struct, frozen=True):
    name: str
    """The key of the figure in the JSON output; stable."""
    value: float
    unit: str
    bound: float
    bound_is: str
    target: float | None
    """None: reported, without a target."""
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float:
        """The cost as a multiple of the bound; 1 is best."""
        if self.better == "higher":
            return self.bound / self.value if self.value else float("inf")
        return self.value / self.bound if self.bound else float(self.value > 0)

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.better == "higher" else self.value <= self.target

    def line(self) -> str:
        return (
            f"{self.name:<36} {self.value:>10.4g} {self.unit:<6} {self._verdict:<23}"
            f" {self.ratio:>6.1f} x bound {self.bound:.4g} {self.unit} ({self.bound_is})"
        )

    @property
    def _verdict(self) -> str:
        if self.target is None:
            return ""
        sign = "≥" if self.better == "higher" else "≤"
        return f"target {sign} {self.target:<6g} {'met' if self.met else 'MISSED'}"
