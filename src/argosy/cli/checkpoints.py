"""`argosy checkpoints`: lists, verifies, copies and deletes what a store has."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from argosy.checkpoint.drivers.credentials import read_credentials
from argosy.checkpoint.drivers.transfer import copy_checkpoint
from argosy.checkpoint.drivers.uris import open_checkpoints, open_store
from argosy.checkpoint.manifest import InvalidManifestError, Manifest
from argosy.checkpoint.store import CheckpointList, Scan, Store, StoreError
from argosy.cli.group import SuggestingGroup
from argosy.cli.tables import columns
from argosy.kinds.text import pluralize

_DAMAGED = 1


class CheckpointRow(Struct, frozen=True, omit_defaults=True):
    """A checkpoint as the commands print it in JSON."""

    name: str
    step: int = -1
    digest: str = ""
    created: str = ""
    world: int = 0
    size: int = 0
    attempt: int = 0
    epoch: int = 0
    job: str = ""
    parent: str = ""
    problems: tuple[str, ...] = ()


class Copied(Struct, frozen=True):
    """The result of `copy` in JSON."""

    name: str
    digest: str
    target: str


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
credentials_option = click.option(
    "--credentials",
    type=click.Path(exists=True, path_type=Path),
    help="File with lines NAME=value, or a folder with a file for each name. Default: the environment.",
)


@click.group(cls=SuggestingGroup)
def checkpoints() -> None:
    """List, verify, copy and delete the checkpoints of a job.

    URI is the folder of one job: file:///folder, pvc://claim/folder, s3://bucket/prefix, gs://bucket/prefix,
    az://container/prefix, oci://registry/repository. The folder may also be one that training code writes to.
    A checkpoint is named by its name, its step, its digest, or `latest`.
    """


@checkpoints.command("list")
@click.argument("uri")
@credentials_option
@output_option
def list_checkpoints(uri: str, credentials: Path | None, output: str) -> None:
    """List checkpoints, the newest first; exit code 1 if some cannot be used."""
    with _errors():
        scan = _open(uri, credentials).scan()
    rows = [_row(manifest) for manifest in scan.manifests]
    unusable = [CheckpointRow(skipped.name, problems=(skipped.reason,)) for skipped in scan.skipped]
    if output == "json":
        _print_json([*rows, *unusable])
    elif rows:
        titles = ("NAME", "STEP", "CREATED", "RANKS", "SIZE", "EPOCH")
        click.echo(columns([titles, *map(_columns, rows)]))
    else:
        click.echo(f"no checkpoints in {uri}", err=True)
    _report(scan)
    if unusable:
        sys.exit(_DAMAGED)


@checkpoints.command()
@click.argument("uri")
@click.argument("checkpoint", default="latest")
@credentials_option
@output_option
def show(uri: str, checkpoint: str, credentials: Path | None, output: str) -> None:
    """Show one checkpoint with its files; by default the newest whose data is there."""
    with _errors():
        manifest = _choose(_open(uri, credentials), checkpoint)
    if output == "json":
        _print_json({"name": manifest.name, "digest": manifest.digest, **msgspec.to_builtins(manifest)})
        return
    facts = {
        "Name": manifest.name,
        "Digest": manifest.digest,
        "Parent": manifest.parent or "-",
        "Created": manifest.created or "-",
        "Step": str(manifest.step),
        "Ranks": str(manifest.world),
        "Epoch": str(manifest.epoch),
        "Attempt": str(manifest.attempt),
        "Job": manifest.job or "-",
        "Saved in": f"{manifest.seconds:.1f} s",
        "Size": _size(manifest.size),
    }
    click.echo(columns([(f"{name}:", value) for name, value in facts.items()]))
    files = [(part.path, str(part.rank), _size(part.size), part.sha256[:12]) for part in manifest.parts]
    click.echo("\n" + columns([("FILE", "RANK", "SIZE", "SHA256"), *files]))


@checkpoints.command()
@click.argument("uri")
@click.argument("names", metavar="[CHECKPOINT]...", nargs=-1)
@credentials_option
@output_option
def verify(uri: str, names: Sequence[str], credentials: Path | None, output: str) -> None:
    """Read checkpoints and compare every digest; exit code 1 if one is damaged. Default: all."""
    with _errors():
        store = _open(uri, credentials)
        scan = Scan(tuple(_choose(store, name) for name in names)) if names else store.scan()
        rows = []
        for manifest in scan.manifests:
            problems = tuple(store.verify(manifest))
            rows.append(msgspec.structs.replace(_row(manifest), problems=problems))
            if output == "text":
                click.echo(f"{manifest.name}: {'; '.join(problems) or 'ok'}")
    rows += [CheckpointRow(skipped.name, problems=(skipped.reason,)) for skipped in scan.skipped]
    if output == "json":
        _print_json(rows)
    _report(scan)
    if any(row.problems for row in rows):
        sys.exit(_DAMAGED)


@checkpoints.command()
@click.argument("uri")
@click.option("--keep-last", type=click.IntRange(min=1), required=True, help="How many of the newest stay.")
@click.option("--keep", multiple=True, help="Name or digest of a checkpoint that stays; repeatable.")
@credentials_option
@output_option
def prune(uri: str, keep_last: int, keep: Sequence[str], credentials: Path | None, output: str) -> None:
    """Delete older checkpoints, and what uploads that were killed have left for an hour.

    The space of chunks is freed by the next prune after an hour, because an upload may just use them.
    """
    with _errors():
        store = _open(uri, credentials)
        deleted = store.prune(keep_last, [_choose(store, name).digest for name in keep])
    if output == "json":
        _print_json(deleted)
        return
    for name in deleted:
        click.echo(f"deleted {name}")
    click.echo(f"{pluralize(len(deleted), 'checkpoint')} deleted", err=True)


@checkpoints.command()
@click.argument("source")
@click.argument("target")
@click.argument("checkpoint", default="latest")
@credentials_option
@click.option(
    "--target-credentials",
    type=click.Path(exists=True, path_type=Path),
    help="As --credentials, for the target. Default: the same.",
)
@output_option
def copy(
    source: str,
    target: str,
    checkpoint: str,
    credentials: Path | None,
    target_credentials: Path | None,
    output: str,
) -> None:
    """Copy one checkpoint to another store, or between a store and a folder of this machine.

    SOURCE and TARGET are URIs, or folders with checkpoints as training code writes them (`step-<n>`). Every
    digest is verified on the way.
    """
    with _errors():
        manifest = copy_checkpoint(
            _end(source, credentials), _end(target, target_credentials or credentials), _chooser(checkpoint)
        )
    if output == "json":
        _print_json(Copied(manifest.name, manifest.digest, target))
    else:
        click.echo(f"{manifest.name} copied to {target}")


def _end(place: str, credentials: Path | None) -> Store | Path:
    """Return the store of a URI, or else the folder."""
    return open_store(place, _credentials(credentials)) if "://" in place else Path(place)


def _open(uri: str, credentials: Path | None) -> CheckpointList:
    return open_checkpoints(uri, _credentials(credentials))


def _credentials(credentials: Path | None) -> Mapping[str, str]:
    return read_credentials(credentials) if credentials else {}


def _choose(store: CheckpointList, name: str) -> Manifest:
    if name == "latest":
        latest = store.find_latest()
        for skipped in latest.skipped:
            click.echo(f"{skipped.name}: {skipped.reason}", err=True)
        if latest.manifest is None:
            raise StoreError(f"{store.uri}: has no checkpoint that can be used")
        return latest.manifest
    return _chooser(name)(store.list())


def _chooser(name: str) -> Callable[[Sequence[Manifest]], Manifest]:
    """Return a function that picks a checkpoint by name, step or digest out of those there are."""

    def choose(manifests: Sequence[Manifest]) -> Manifest:
        for manifest in manifests:
            if name in ("latest", manifest.name, str(manifest.step), manifest.digest):
                return manifest
        names = ", ".join(manifest.name for manifest in manifests[:10]) or "none"
        raise StoreError(f'no checkpoint "{name}" (checkpoints: {names})')

    return choose


def _row(manifest: Manifest) -> CheckpointRow:
    return CheckpointRow(
        name=manifest.name,
        step=manifest.step,
        digest=manifest.digest,
        created=manifest.created,
        world=manifest.world,
        size=manifest.size,
        attempt=manifest.attempt,
        epoch=manifest.epoch,
        job=manifest.job,
        parent=manifest.parent,
    )


def _columns(row: CheckpointRow) -> tuple[str, ...]:
    return row.name, str(row.step), row.created or "-", str(row.world), _size(row.size), str(row.epoch)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _report(scan: Scan) -> None:
    for skipped in scan.skipped:
        click.echo(f"{skipped.name}: {skipped.reason}", err=True)


def _print_json(content: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(content)))


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (StoreError, InvalidManifestError) as error:
        raise click.ClickException(str(error)) from None
