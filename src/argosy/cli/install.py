"""`argosy install`, `upgrade` and `uninstall`: manage the operator on a cluster, without Helm."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import yaml

from argosy.cli.cluster_access import async_command, connect, connection_options
from argosy.cli.documents import read_yaml
from argosy.install.chart import Chart, ValuesError, chart_folder, merge_values
from argosy.install.installation import MANAGER, Installation, InstallError
from argosy.install.presets import PRESETS, choose_preset
from argosy.kinds.meta import Json

Command = TypeVar("Command", bound=Callable[..., object])

_target_options = (
    connection_options,
    click.option(
        "-n",
        "--namespace",
        help="Namespace of the operator; default: argosy-system, or the usual one of a single --api.",
    ),
    click.option(
        "--api",
        "apis",
        multiple=True,
        type=click.Choice(tuple(PRESETS)),
        help="Serve only this API; can be repeated.",
    ),
)
_value_options = (
    click.option("--dry-run", is_flag=True, help="Print the objects and change nothing."),
    click.option(
        "--values",
        "files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="YAML file with values of the chart; can be repeated.",
    ),
    click.option(
        "--set",
        "pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="Value of the chart, such as log.level=debug; can be repeated.",
    ),
    click.option(
        "--wait",
        "seconds",
        type=float,
        default=120.0,
        show_default=True,
        help="Seconds to wait until all replicas are ready; 0: do not wait.",
    ),
)


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@_options(*_target_options, *_value_options)
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
    """Install the operator on a cluster.

    Applies the objects of the Helm chart server-side. Helm is not needed.
    """
    defaults = choose_preset(apis)
    values = merge_values(defaults.values, _values_from_options(files, pairs))
    target = namespace or defaults.namespace
    if dry_run:
        _print_manifests(target, values)
        return
    async with _OpenInstallation(kubeconfig, context, target) as installation:
        await installation.install(values)
        if seconds:
            await installation.wait(seconds)


@click.command()
@_options(*_target_options, *_value_options)
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
    """Upgrade an installed operator, or change its values.

    The operator is upgraded to this version of Argosy. Values of earlier installs and upgrades are kept.
    """
    defaults = choose_preset(apis)
    changes = merge_values(defaults.values, _values_from_options(files, pairs))
    target = namespace or defaults.namespace
    async with _OpenInstallation(kubeconfig, context, target) as installation:
        if dry_run:
            notes = await installation.manifest()
            _print_manifests(target, merge_values(notes.values if notes else {}, changes))
            return
        await installation.upgrade(changes)
        if seconds:
            await installation.wait(seconds)


@click.command()
@_options(
    *_target_options,
    click.option("--crds", is_flag=True, help="Also delete the CRDs, and with them all jobs."),
)
@async_command
async def uninstall(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    crds: bool,
) -> None:
    """Remove the operator; jobs, pods and CRDs stay."""
    target = namespace or choose_preset(apis).namespace
    async with _OpenInstallation(kubeconfig, context, target) as installation:
        await installation.uninstall(crds=crds)
    if not crds:
        click.echo("kept: CRDs and jobs; `--crds` deletes them too")


class _OpenInstallation:
    """Opens an installation, and reports its errors as messages."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str) -> None:
        self._client = connect(kubeconfig, context, field_manager=MANAGER)
        self._namespace = namespace

    async def __aenter__(self) -> Installation:
        return Installation(self._client, self._namespace, Chart(chart_folder()), click.echo)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._client.close()
        if isinstance(error, InstallError | ValuesError):
            raise click.ClickException(str(error)) from error


def _print_manifests(namespace: str, values: Json) -> None:
    chart = Chart(chart_folder())
    try:
        objects = chart.objects(namespace, chart.values(values))
    except ValuesError as error:
        raise click.ClickException(str(error)) from error
    click.echo(yaml.safe_dump_all(objects, sort_keys=False), nl=False)


def _values_from_options(files: tuple[Path, ...], pairs: tuple[str, ...]) -> Json:
    """Merge the values of all options; --set overrides files."""
    values: Json = {}
    for file in files:
        for content in read_yaml(file):
            if not isinstance(content, dict):
                raise click.BadParameter(f"{file}: must contain a map of values", param_hint="--values")
            values = merge_values(values, content)
    for pair in pairs:
        values = merge_values(values, parse_set(pair))
    return values


def parse_set(pair: str) -> Json:
    """Return `log.level=debug` as values.

    As with Helm, numbers, true, false, null and {a,b} are typed; everything else is text.
    """
    key, separator, text = pair.partition("=")
    if not separator or not all(key.split(".")):
        raise click.BadParameter(f"{pair!r}: must be KEY=VALUE", param_hint="--set")
    items = text[1:-1].split(",") if text.startswith("{") and text.endswith("}") else None
    value: object = _parse_scalar(text) if items is None else [_parse_scalar(item) for item in items if item]
    for name in reversed(key.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _parse_scalar(text: str) -> object:
    constants = {"true": True, "false": False, "null": None}
    if text in constants:
        return constants[text]
    return int(text) if re.fullmatch(r"0|-?[1-9]\d*", text) else text
