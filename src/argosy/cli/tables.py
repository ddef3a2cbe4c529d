"""Formats tables, ages and commands."""

from collections.abc import Sequence
from datetime import timedelta


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns, three spaces apart; the last column is not padded."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def age(span: timedelta) -> str:
    """Return a duration as kubectl prints ages: `45s`, `3m20s`, `5h`, `4d`."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 3:
        return f"{hours * 60 + minutes}m"
    days, hours = divmod(hours, 24)
    return f"{days * 24 + hours}h" if days < 3 else f"{days}d"


def command_line(command: str, namespace: str, name: str, *options: str) -> str:
    """Return the command line for one job: `argosy logs -n team -f mnist`."""
    scope = () if namespace == "default" else ("-n", namespace)
    return " ".join(("argosy", command, *scope, *options, name))


def byte_count(size: int) -> str:
    """Return a number of bytes for people: `812 B`, `1.5 GiB`."""
    number, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number, units = number / 1024, units[1:]
    return f"{number:.0f} {units[0]}" if units[0] == "B" or number >= 100 else f"{number:.1f} {units[0]}"
