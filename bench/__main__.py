"""`scripts/bench`: runs the benchmarks and prints each figure with its bound.

`--json FILE` also writes `{name: {value, unit, bound, ratio}}`. The exit code is 1 if a target is missed.
"""

import argparse
import importlib
import sys
from pathlib import Path

import msgspec

from bench.figures import Figure

MODULES = (
    *("cli", "api", "engine", "decide", "helper", "latency"),
    *("operator", "machines", "agent", "checkpoint", "orders", "kubernetes", "elastic", "torch"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("modules", nargs="*", choices=[[], *MODULES], help="benchmarks to run; default: all")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in arguments.modules or MODULES:
        for figure in importlib.import_module(f"bench.{name}").measure():
            print(figure.line(), flush=True)
            figures.append(figure)
    if arguments.json:
        content = {
            figure.name: {
                "value": figure.value,
                "unit": figure.unit,
                "bound": figure.bound,
                "ratio": figure.ratio,
            }
            for figure in figures
        }
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
