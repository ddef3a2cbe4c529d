"""`argosy frameworks` and `argosy conformance`: lists framework adapters and tests one of them."""

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
    from argosy.frameworks.registry import Entry


@click.command()
@output_option
def frameworks(output: str) -> None:
    """List the frameworks that a job can use.

    These are the built-in ones and those of installed packages.
    """
    from argosy.frameworks.registry import entries

    installed = entries()
    if output == "json":
        rows = [
            {
                "name": entry.name,
                "from": entry.origin,
                "options": _option_names(entry),
                "problem": entry.problem,
            }
            for entry in installed
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    lines = [
        (entry.name, entry.origin, entry.problem or ", ".join(_option_names(entry))) for entry in installed
    ]
    click.echo(columns([("NAME", "FROM", "OPTIONS"), *lines]))


@click.group()
def conformance() -> None:
    """Check adapters of frameworks."""


@conformance.command("framework")
@click.argument("name")
@click.option("--live", is_flag=True, help="Also run the samples in a cluster, with a probe in every pod.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Path of the kubeconfig file.")
def conformance_framework(name: str, live: bool, kubeconfig: str | None) -> None:
    """Check the adapter NAME with its sample jobs; exit code 1 if a check fails.

    With --live the samples also run in a temporary namespace. Their pods use the image ARGOSY_TEST_IMAGE,
    which must have a shell and python3 (default: local, for the local control plane).
    """
    from argosy.conformance.kit import findings
    from argosy.conformance.samples import samples_of
    from argosy.frameworks.registry import entries
    from argosy.kinds.text import unknown_name

    entry = next((entry for entry in entries() if entry.name == name), None)
    if entry is None:
        raise click.ClickException(unknown_name("framework", name, (entry.name for entry in entries())))
    if entry.framework is None:
        raise click.ClickException(f"framework {name} from {entry.origin}: {entry.problem}")
    samples = samples_of(entry.framework)
    if not samples:
        raise click.ClickException(
            f"{name} has no samples: declare `samples: ClassVar[tuple[Sample, ...]]` in the adapter"
        )
    failed = 0
    results = findings(entry.framework, samples)
    if live:
        results = chain(results, _live_findings(entry.framework, samples, kubeconfig))
    for finding in results:
        failed += bool(finding.problem)
        detail = finding.problem or finding.skipped
        mark = "FAIL" if finding.problem else "-   " if finding.skipped else "ok  "
        click.echo(f"{mark}  {finding.sample}: {finding.check}" + (f": {detail}" if detail else ""))
    if failed:
        raise click.ClickException(f"{name} does not conform: {failed} checks failed")
    click.echo(f"{name} conforms")


def _live_findings(
    framework: "Framework", samples: "tuple[Sample, ...]", kubeconfig: str | None
) -> "Iterator[Finding]":
    """Run the samples in the cluster, one after the other."""
    from argosy.conformance.contract import NonConformance
    from argosy.conformance.kit import Finding
    from argosy.conformance.live import LIVE_CHECK, check_live
    from argosy.conformance.namespace import temporary_namespace

    path = kubeconfig_path(kubeconfig) or Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
    if not path.exists():
        raise click.ClickException(f"{path}: not found; `argosy up` starts a control plane on this machine")
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


def _option_names(entry: "Entry") -> list[str]:
    if entry.framework is None:
        return []
    return [field.encode_name for field in msgspec.structs.fields(entry.framework.Options)]
