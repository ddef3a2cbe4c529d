"""`argosy frameworks` and `argosy conformance`: which adapters there are, and whether one keeps its word."""

import os
import secrets
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from argosy.cli.cluster_access import kubeconfig_path
from argosy.cli.jobs import output_option
from argosy.cli.tables import columns

if TYPE_CHECKING:
    from argosy.conformance.kit import Finding
    from argosy.frameworks.base import Framework, Sample


@click.command()
@output_option
def frameworks(output: str) -> None:
    """List the frameworks that a run can name: built in, and of installed packages."""
    from argosy.frameworks.registry import entries

    found = entries()
    if output == "json":
        rows = [
            {
                "name": entry.name,
                "from": entry.origin,
                "options": _option_names(entry),
                "problem": entry.problem,
            }
            for entry in found
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    told = [(entry.name, entry.origin, entry.problem or ", ".join(_option_names(entry))) for entry in found]
    click.echo(columns([("NAME", "FROM", "OPTIONS"), *told]))


@click.group()
def conformance() -> None:
    """Hold something to what the rest of Argosy relies on."""


@conformance.command("framework")
@click.argument("name")
@click.option("--live", is_flag=True, help="Also run the samples in the cluster, with a probe in every pod.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="The cluster to run them in.")
def conformance_framework(name: str, live: bool, kubeconfig: str | None) -> None:
    """Check the adapter NAME with the jobs that it gives as samples; exit code 1 if it fails.

    With --live, in a namespace of its own, and with pods of the image in ARGOSY_TEST_IMAGE, which needs a
    shell and python3 (default: local, as of the local control plane).
    """
    from argosy.conformance.kit import findings
    from argosy.conformance.samples import samples_of
    from argosy.frameworks.registry import entries
    from argosy.kinds.messages import unknown_name

    entry = next((entry for entry in entries() if entry.name == name), None)
    if entry is None:
        raise click.ClickException(unknown_name("framework", name, (entry.name for entry in entries())))
    if entry.framework is None:
        raise click.ClickException(f"framework {name} of {entry.origin} {entry.problem}")
    samples = samples_of(entry.framework)
    if not samples:
        raise click.ClickException(
            f"{name} gives no samples: declare `samples: ClassVar[tuple[Sample, ...]]` in the adapter"
        )
    failed = 0
    found = findings(entry.framework, samples)
    if live:
        found = chain(found, _live_findings(entry.framework, samples, kubeconfig))
    for finding in found:
        failed += bool(finding.problem)
        why = finding.problem or finding.nothing
        mark = "FAIL" if finding.problem else "-   " if finding.nothing else "ok  "
        click.echo(f"{mark}  {finding.sample}: {finding.check}" + (f": {why}" if why else ""))
    if failed:
        raise click.ClickException(f"{name} breaks {failed} of the rules")
    click.echo(f"{name} conforms")


def _live_findings(
    framework: "Framework", samples: "tuple[Sample, ...]", kubeconfig: str | None
) -> "Iterator[Finding]":
    """Run the same samples in the cluster, one after the other."""
    from argosy.conformance.contract import NonConformance
    from argosy.conformance.kit import Finding
    from argosy.conformance.live import LIVE_CHECK, check_live
    from argosy.conformance.namespace import temporary_namespace

    path = kubeconfig_path(kubeconfig) or Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
    if not path.exists():
        raise click.ClickException(f"there is no {path}; `argosy up` starts a control plane here")
    try:
        with temporary_namespace(path, f"conformance-{secrets.token_hex(3)}") as namespace:
            for sample in samples:
                problem = ""
                try:
                    check_live(namespace, framework, sample)
                except NonConformance as error:
                    problem = str(error)
                yield Finding(LIVE_CHECK, sample.title, problem)
    except (NonConformance, FileNotFoundError) as error:
        raise click.ClickException(str(error)) from None


def _option_names(entry: object) -> list[str]:
    from argosy.frameworks.registry import Entry

    assert isinstance(entry, Entry)
    kind = entry.framework.Options if entry.framework else None
    return [one.encode_name for one in msgspec.structs.fields(kind)] if kind else []
