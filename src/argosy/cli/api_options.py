"""Options of `argosy operator` that concern one API alone, made from what the APIs register."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import click

from argosy.operator.apis.base import Api, SettingOption, setting, with_setting
from argosy.operator.apis.registry import APIS

Command = TypeVar("Command", bound=Callable[..., object])

_VALUES: Final = "argosy.api-options"
"""Key in the context of a command under which the options that were given are collected, by flag."""


def api_options(command: Command) -> Command:
    """Add `--api`, and the options of all APIs; `chosen_apis` returns what was given."""
    for api in reversed(APIS):
        for option in reversed(api.options):
            command = _option(api, option)(command)
    return click.option(
        "--api",
        "apis",
        multiple=True,
        type=click.Choice([api.name for api in APIS]),
        help="Serve this API; can be repeated; default: all.",
    )(command)


def chosen_apis(names: Sequence[str]) -> tuple[Api, ...]:
    """Return the APIs of these names, or all, with the settings that options of this command give them."""
    given: Mapping[str, object] = click.get_current_context().meta.get(_VALUES, {})
    chosen = tuple(api for api in APIS if not names or api.name in names)
    for api in APIS:
        for option in api.options:
            if api not in chosen and option.flag in given:
                raise click.UsageError(f"{option.flag}: not supported without --api {api.name}")
    return tuple(_with_options(api, given) for api in chosen)


def _with_options(api: Api, given: Mapping[str, object]) -> Api:
    settings = api.settings
    for option in api.options:
        if option.flag in given:
            settings = with_setting(settings, option.field, given[option.flag])
    return replace(api, settings=settings)


def _option(api: Api, option: SettingOption) -> Callable[[Command], Command]:
    default = setting(api.settings, option.field)

    def collect(context: click.Context, parameter: click.Parameter, value: object) -> None:
        del parameter
        if value is not None:
            context.meta.setdefault(_VALUES, {})[option.flag] = value

    return click.option(
        option.flag,
        type=_type(option, default),
        # A flag of et-operator may have a value: --flag, --flag=true, --flag=false.
        is_flag=False,
        flag_value=True if isinstance(default, bool) else None,
        callback=collect,
        expose_value=False,
        help=f"{option.help}  [default: {_text(default)}]",
    )


def _type(option: SettingOption, default: object) -> click.ParamType[object]:
    if isinstance(default, bool):
        return click.BOOL
    if isinstance(default, int):
        return click.IntRange(min=option.minimum)
    if isinstance(default, float):
        return click.FloatRange(min=option.minimum)
    return click.STRING


def _text(default: object) -> str:
    """Return a default as it is written on the command line."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
