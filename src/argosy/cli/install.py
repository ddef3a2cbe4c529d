"""`argosy install`, `upgrade` and `uninstall`: the operator on a cluster, from the chart, without Helm."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import yaml

from argosy.cli.cluster_access import async_command, kubeconfig_path
from argosy.cli.documents import read_yaml
from argosy.install.chart import Chart, WrongValues, folder, merged
from argosy.install.installation import MANAGER, Installation, InstallError
from argosy.install.presets import PRESETS, preset
from argosy.kinds.meta import Json

Command = TypeVar("Command", bound=Callable[..., object])

_cluster_options = (
    click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Talk to the cluster of this file."),
    click.option("--context", help="A context of the kubeconfig."),
    click.option(
        "-n",
        "--namespace",
        help="Where the operator is, or will be; argosy-system, or what users of a single API know.",
    ),
    click.option(
        "--api",
        "apis",
        multiple=True,
        type=click.Choice(tuple(PRESETS)),
        help="Serve this API only; may be given several times.",
    ),
)
_value_options = (
    click.option("--dry-run", is_flag=True, help="Print the objects instead, and ask no cluster."),
    click.option(
        "--values",
        "files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A YAML file of the chart's values; may be given several times.",
    ),
    click.option(
        "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="One value, such as log.level=debug."
    ),
    click.option(
        "--wait",
        "seconds",
        type=float,
        default=120.0,
        show_default=True,
        help="Seconds until all replicas must be ready; 0 does not wait.",
    ),
)


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@_options(*_cluster_options, *_value_options)
@async_command
async def install(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    dry_run: bool,
    files: tuple[Path, ...],
    pairs: tuple[str, ...],
    seconds: float,
) -> None:
    """Install the operator: the objects of the Helm chart, applied server-side."""
    chosen = preset(apis)
    given = merged(chosen.values, _values_from_options(files, pairs))
    where = namespace or chosen.namespace
    if dry_run:
        _print_manifests(where, given)
        return
    async with _OpenInstallation(kubeconfig, context, where) as installation:
        await installation.install(given)
        if seconds:
            await installation.wait(seconds)


@click.command()
@_options(*_cluster_options, *_value_options)
@async_command
async def upgrade(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    dry_run: bool,
    files: tuple[Path, ...],
    pairs: tuple[str, ...],
    seconds: float,
) -> None:
    """Change an installation: to this version of Argosy, and to other values. Values given before stay."""
    chosen = preset(apis)
    changes = merged(chosen.values, _values_from_options(files, pairs))
    where = namespace or chosen.namespace
    async with _OpenInstallation(kubeconfig, context, where) as installation:
        if dry_run:
            notes = await installation.notes()
            _print_manifests(where, merged(notes.values if notes else {}, changes))
            return
        await installation.upgrade(changes)
        if seconds:
            await installation.wait(seconds)


@click.command()
@_options(
    *_cluster_options,
    click.option("--definitions", is_flag=True, help="The definitions too, and with them all jobs."),
)
@async_command
async def uninstall(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    definitions: bool,
) -> None:
    """Take the operator away. Jobs, their pods and the definitions of their kinds stay, unless asked for."""
    where = namespace or preset(apis).namespace
    async with _OpenInstallation(kubeconfig, context, where) as installation:
        await installation.uninstall(definitions=definitions)
    if not definitions:
        click.echo("jobs and the definitions of their kinds are still there")


class _OpenInstallation:
    """The installation that is meant, with its errors told to the user."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str) -> None:
        from argosy.engine.client import Client
        from argosy.engine.entries import KubeconfigError
        from argosy.engine.kubeconfig import Connection

        try:
            connection = Connection.from_kubeconfig(kubeconfig_path(kubeconfig), context=context)
        except KubeconfigError as error:
            raise click.ClickException(str(error)) from error
        self._client = Client(connection, user_agent="argosy-cli", field_manager=MANAGER, strict=True)
        self._namespace = namespace

    async def __aenter__(self) -> Installation:
        return Installation(self._client, self._namespace, Chart(folder()), click.echo)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._client.close()
        if isinstance(error, InstallError | WrongValues):
            raise click.ClickException(str(error)) from error


def _print_manifests(namespace: str, given: Json) -> None:
    chart = Chart(folder())
    try:
        objects = chart.objects(namespace, chart.values(given))
    except WrongValues as error:
        raise click.ClickException(str(error)) from error
    click.echo(yaml.safe_dump_all(objects, sort_keys=False), nl=False)


def _values_from_options(files: tuple[Path, ...], pairs: tuple[str, ...]) -> Json:
    """What the user gave, together; single values win over files."""
    given: Json = {}
    for file in files:
        for content in read_yaml(file):
            if not isinstance(content, dict):
                raise click.BadParameter(f"{file} holds no map of values", param_hint="--values")
            given = merged(given, content)
    for pair in pairs:
        given = merged(given, set_value(pair))
    return given


def set_value(pair: str) -> Json:
    """`log.level=debug` as values, read as Helm does: numbers, true, false, null and {a,b}; else text."""
    key, separator, text = pair.partition("=")
    if not separator or not all(key.split(".")):
        raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
    listed = text[1:-1].split(",") if text.startswith("{") and text.endswith("}") else None
    value: object = _parse_scalar(text) if listed is None else [_parse_scalar(one) for one in listed if one]
    for name in reversed(key.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _parse_scalar(text: str) -> object:
    words = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"0|-?[1-9]\d*", text) else text
