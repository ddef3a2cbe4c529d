"""`scripts/bench`: run the measurements and print each beside its bound.

`--json FILE` writes `{name: {value, unit, bound, ratio}}`. Exit code 1 when a target was missed.
"""

import argparse
import importlib
import sys
from pathlib import Path

import msgspec

from bench.figures import Figure

MODULES = ("people", "api", "engine", "decide", "helper", "prompt", "operator", "kubernetes")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("modules", nargs="*", choices=[[], *MODULES], help="which ones; all by default")
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
    return 0 if all(figure.reached for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
