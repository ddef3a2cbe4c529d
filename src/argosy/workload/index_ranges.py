"""Encodes small numbers by index as one short string: `0-3=1,7=2`. Zeros are omitted.

A Record holds such numbers for up to 2,000 pods; a JSON object would be four times as large.
"""

from collections.abc import Iterator, Mapping


def encode(numbers: Mapping[int, int]) -> str:
    return ",".join(
        f"{first}={number}" if first == last else f"{first}-{last}={number}"
        for first, last, number in _runs(numbers)
    )


def decode(text: str) -> dict[int, int]:
    """Return the numbers by index; ValueError if the text is not of this form."""
    numbers: dict[int, int] = {}
    for part in text.split(",") if text else ():
        span, _, number = part.partition("=")
        first, _, last = span.partition("-")
        if int(last or first) > 1_000_000:
            raise ValueError(f"invalid index in {part!r}: must be at most 1000000")
        numbers.update(dict.fromkeys(range(int(first), int(last or first) + 1), int(number)))
    return numbers


def _runs(numbers: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    run: tuple[int, int, int] | None = None
    for index in sorted(numbers):
        number = numbers[index]
        if number == 0:
            continue
        if run and run[1] == index - 1 and run[2] == number:
            run = (run[0], index, number)
            continue
        if run:
            yield run
        run = (index, index, number)
    if run:
        yield run
