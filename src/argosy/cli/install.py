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
from argosy.install.image import image_values
from argosy.install.installation import MANAGER, Installation, InstallError
from argosy.install.presets import PRESETS, choose_preset, split_namespace
from argosy.kinds.meta import Json
from argosy.operator.apis.base import Preset

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
_files_option = click.option(
    "--values",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with values of the chart, and the namespace of the operator; can be repeated.",
)
_value_options = (
    click.option("--dry-run", is_flag=True, help="Print the objects and change nothing."),
    _files_option,
    click.option(
        "--image",
        metavar="REPOSITORY[:TAG][@DIGEST]",
        help="Image of the operator; overrides that of --values.",
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
    click.option(
        "--force",
        is_flag=True,
        help="Replace also CRDs of other operators that share them (migration.dcnlab.com).",
    ),
)


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command()
@_options(
    *_target_options,
    *_value_options,
    click.option("--crds-only", is_flag=True, help="Install or upgrade the CRDs, and nothing else."),
)
@async_command
async def install(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    dry_run: bool,
    files: tuple[Path, ...],
    image: str | None,
    pairs: tuple[str, ...],
    seconds: float,
    force: bool,
    crds_only: bool,
) -> None:
    """Install the operator on a cluster.

    Applies the objects of the Helm chart server-side. Helm is not needed.
    """
    chosen = _read_options(namespace, apis, files, image, pairs)
    if dry_run:
        _print_manifests(chosen.namespace, chosen.values)
        return
    async with _OpenInstallation(kubeconfig, context, chosen.namespace, force=force) as installation:
        if crds_only:
            await installation.install_crds(chosen.values)
            return
        await installation.install(chosen.values)
        if seconds:
            await installation.wait(seconds)


@click.command()
@_options(
    *_target_options,
    *_value_options,
    click.option("--install", "or_install", is_flag=True, help="Install the operator if it is not there."),
)
@async_command
async def upgrade(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    dry_run: bool,
    files: tuple[Path, ...],
    image: str | None,
    pairs: tuple[str, ...],
    seconds: float,
    force: bool,
    or_install: bool,
) -> None:
    """Upgrade an installed operator, or change its values.

    The operator is upgraded to this version of Argosy. Values of earlier installs and upgrades are kept.
    """
    chosen = _read_options(namespace, apis, files, image, pairs)
    async with _OpenInstallation(kubeconfig, context, chosen.namespace, force=force) as installation:
        manifest = await installation.manifest()
        if dry_run:
            values = merge_values(manifest.values if manifest else {}, chosen.values)
            _print_manifests(chosen.namespace, values)
            return
        if manifest is None and or_install:
            await installation.install(chosen.values)
        else:
            await installation.upgrade(chosen.values)
        if seconds:
            await installation.wait(seconds)


@click.command()
@_options(
    *_target_options,
    _files_option,
    click.option("--crds", is_flag=True, help="Also delete the CRDs, and with them all jobs."),
)
@async_command
async def uninstall(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    files: tuple[Path, ...],
    crds: bool,
) -> None:
    """Remove the operator; jobs, pods and CRDs stay."""
    target = _read_options(namespace, apis, files).namespace
    async with _OpenInstallation(kubeconfig, context, target) as installation:
        await installation.uninstall(crds=crds)
    if not crds:
        click.echo("kept: CRDs and jobs; `--crds` deletes them too")


class _OpenInstallation:
    """Opens an installation, and reports its errors as messages."""

    def __init__(
        self, kubeconfig: str | None, context: str | None, namespace: str, *, force: bool = False
    ) -> None:
        self._force = force
        self._client = connect(kubeconfig, context, field_manager=MANAGER)
        self._namespace = namespace

    async def __aenter__(self) -> Installation:
        chart = Chart(chart_folder())
        return Installation(self._client, self._namespace, chart, click.echo, force=self._force)

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


def _read_options(
    namespace: str | None,
    apis: tuple[str, ...],
    files: tuple[Path, ...],
    image: str | None = None,
    pairs: tuple[str, ...] = (),
) -> Preset:
    """Return namespace and values of the installation that the options describe."""
    defaults = choose_preset(apis)
    given, file_namespace = split_namespace(_values_from_options(files, image, pairs))
    target = namespace or file_namespace or defaults.namespace
    return Preset(target, merge_values(defaults.values, given))


def _values_from_options(files: tuple[Path, ...], image: str | None, pairs: tuple[str, ...]) -> Json:
    """Merge the values of all options; --set overrides --image, which overrides files."""
    values: Json = {}
    for file in files:
        for content in read_yaml(file):
            if not isinstance(content, dict):
                raise click.BadParameter(f"{file}: must contain a map of values", param_hint="--values")
            values = merge_values(values, content)
    if image is not None:
        try:
            values = merge_values(values, image_values(image))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--image") from None
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
