"""`argosy frameworks` and `argosy conformance`: which adapters there are, and whether one keeps its word."""

import click
import msgspec

from argosy.cli.jobs import output_option
from argosy.cli.text import columns


@click.command()
@output_option
def frameworks(output: str) -> None:
    """List the frameworks that a run can name: built in, and of installed packages."""
    from argosy.frameworks.registry import entries

    found = entries()
    if output == "json":
        rows = [
            {"name": entry.name, "from": entry.origin, "options": _options(entry), "problem": entry.problem}
            for entry in found
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    told = [(entry.name, entry.origin, entry.problem or ", ".join(_options(entry))) for entry in found]
    click.echo(columns([("NAME", "FROM", "OPTIONS"), *told]))


@click.group()
def conformance() -> None:
    """Hold something to what the rest of Argosy relies on."""


@conformance.command("framework")
@click.argument("name")
def conformance_framework(name: str) -> None:
    """Check the adapter NAME with the jobs that it gives as samples; exit code 1 if it fails."""
    from argosy.frameworks.registry import entries
    from argosy.testing.frameworkkit import findings
    from argosy.testing.samples import samples_of

    entry = next((entry for entry in entries() if entry.name == name), None)
    if entry is None:
        known = ", ".join(entry.name for entry in entries())
        raise click.ClickException(f"there is no framework {name}; there are {known}")
    if entry.framework is None:
        raise click.ClickException(f"framework {name} of {entry.origin} {entry.problem}")
    samples = samples_of(entry.framework)
    if not samples:
        raise click.ClickException(
            f"{name} gives no samples: declare `samples: ClassVar[tuple[Sample, ...]]` in the adapter"
        )
    failed = 0
    for finding in findings(entry.framework, samples):
        failed += bool(finding.problem)
        mark, said = ("FAIL", f": {finding.problem}") if finding.problem else ("ok  ", "")
        click.echo(f"{mark}  {finding.sample}: {finding.check}{said}")
    if failed:
        raise click.ClickException(f"{name} breaks {failed} of the rules")
    click.echo(f"{name} conforms")


def _options(entry: object) -> list[str]:
    from argosy.frameworks.registry import Entry

    assert isinstance(entry, Entry)
    kind = entry.framework.Options if entry.framework else None
    return [one.encode_name for one in msgspec.structs.fields(kind)] if kind else []
