"""Reads the YAML files of the command line.

A duplicate key in a map is an error, as for kubectl: the parser alone would silently keep the last one.
"""

import sys
from pathlib import Path

import click
import yaml

from argosy.cli.local_mounts import Manifest


def load(path: Path) -> list[Manifest]:
    """Return the Kubernetes objects of a YAML file; raise ClickException if it has none or is not YAML."""
    documents: list[Manifest] = []
    for document in read_yaml(path):
        if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
            raise click.ClickException(f"{path}: every document must have apiVersion and kind")
        documents.append(document)
    return documents


def read_yaml(path: Path) -> list[object]:
    """Return the documents of a YAML file, without empty ones; `-` is standard input."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        return [document for document in yaml.load_all(text, _StrictLoader) if document is not None]
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path}: not text: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path}: not YAML: {_problem(error)}") from error


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that rejects duplicate keys."""

    def compose_mapping_node(self, anchor: object) -> yaml.MappingNode:
        # Check before merge keys (`<<`) are resolved: a map may override the keys that they bring.
        node = super().compose_mapping_node(anchor)  # type: ignore[arg-type]  # a str, unlike in the stubs
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in keys:
                raise yaml.MarkedYAMLError(
                    problem=f'duplicate key "{key.value}"', problem_mark=key.start_mark
                )
            keys.add((key.tag, key.value))
        return node


def _problem(error: yaml.YAMLError) -> str:
    """Return position and problem of a YAML error in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())
