"""Pieces of CEL expressions that rules of our kinds share."""


def digits(number: str) -> str:
    """A number below 100,000 as a CEL string. The cost of joining what `string(int)` gives is held to be
    without bound, so the digits are looked up in a list."""
    digit = "['0','1','2','3','4','5','6','7','8','9']"
    places = [
        f"({number} > {10**power - 1} ? {digit}[{number} / {10**power} % 10] : '')" for power in (4, 3, 2, 1)
    ]
    return " + ".join([*places, f"{digit}[{number} % 10]"])
