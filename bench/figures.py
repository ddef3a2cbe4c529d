"""A measured figure, and how it is judged.

A time on a shared machine means little by itself, so every figure carries a bound measured right beside it:
the same work with nothing of ours in it. The ratio of the two is what may be compared between machines.
"""

from typing import Literal

from msgspec import Struct


class Figure(Struct, frozen=True):
    name: str
    """Stable: what reads the JSON knows figures by it."""
    value: float
    unit: str
    bound: float
    bound_is: str
    target: float | None
    """None: told for what it is, and judged by nobody."""
    better: Literal["lower", "higher"] = "lower"

    @property
    def ratio(self) -> float:
        """How many times the bound it costs; the nearer to 1 the better."""
        if self.better == "higher":
            return self.bound / self.value if self.value else float("inf")
        return self.value / self.bound if self.bound else float(self.value > 0)

    @property
    def reached(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.better == "higher" else self.value <= self.target

    def line(self) -> str:
        return (
            f"{self.name:<24} {self.value:>10.4g} {self.unit:<6} {self._verdict:<23}"
            f" {self.ratio:>6.1f} x bound {self.bound:.4g} {self.unit} ({self.bound_is})"
        )

    @property
    def _verdict(self) -> str:
        if self.target is None:
            return ""
        sign = "≥" if self.better == "higher" else "≤"
        return f"target {sign} {self.target:<6g} {'reached' if self.reached else 'MISSED'}"
