"""`argosy operator`: runs the operator against any cluster, as its Deployment does."""

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from argosy.cli.api_options import api_options, chosen_apis
from argosy.cli.server_options import CommonOptions, apply_config_file, run_operator, server_options

if TYPE_CHECKING:  # imported only when the command runs
    from argosy.operator.settings import Settings


@click.command()
@server_options
@api_options
@click.option("--leader-elect/--no-leader-elect", "--enable-leader-election", default=True, show_default=True)
@click.option("--identity", help="Name of this replica in the Lease; default: host name and a random suffix.")
@click.option("--helper-image", help="Image of the containers that wait for roles and prepare remote exec.")
@click.option("--advertise-url", default="", help="URL under which pods reach the endpoint.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1024),
    default=32,
    show_default=True,
    help="Number of jobs that are reconciled at the same time.",
)
@click.option("--cluster-domain", help="DNS domain of the cluster; default: cluster.local.")
@click.option(
    "--webhooks",
    default="",
    help="Serve admission webhooks; the name of their webhook configurations.",
)
@click.option(
    "--gang-backend",
    type=click.Choice(["volcano", "kubernetes", "scheduler-plugins", "kueue", "builtin", "auto", "none"]),
    help="Scheduler of gangs; default: volcano.",
)
@click.option(
    "--remote-exec/--no-remote-exec",
    default=True,
    show_default=True,
    help="Give launchers a ServiceAccount that can exec in the pods of their job.",
)
@click.option(
    "--ssh-keys/--no-ssh-keys",
    default=True,
    show_default=True,
    help="Create keys for jobs that start processes by ssh.",
)
@click.option(
    "--notice-taints",
    help="Taints that announce the end of a node, as KEY=CAUSE,KEY=CAUSE; default: those of the clouds.",
)
@click.option(
    "--cordon-is-notice/--no-cordon-is-notice",
    default=False,
    show_default=True,
    help="Take an unschedulable node as one that is about to be drained.",
)
@click.option(
    "--quarantine",
    default="off",
    show_default=True,
    help="Keep new pods off nodes on which pods fail repeatedly: on, off, or rules such as"
    " failures=3,replicas=2,namespaces=2,window=10m,duration=1h,maxPercent=10.",
)
@click.option(
    "--local",
    type=click.Path(file_okay=False, path_type=Path),
    help="Serve the local control plane of this state folder.",
)
def operator(
    config: Path | None,
    apis: tuple[str, ...],
    leader_elect: bool,
    identity: str | None,
    helper_image: str | None,
    advertise_url: str,
    concurrency: int,
    cluster_domain: str | None,
    webhooks: str,
    gang_backend: str | None,
    remote_exec: bool,
    ssh_keys: bool,
    notice_taints: str | None,
    cordon_is_notice: bool,
    quarantine: str,
    local: Path | None,
    **common: Unpack[CommonOptions],
) -> None:
    """Run the operator against any cluster."""
    from dataclasses import replace

    import msgspec

    from argosy.operator.settings import Settings, local_settings

    if local is not None:
        settings = replace(local_settings(local, common["kubeconfig"]), log_level=common["log_level"])
        settings = replace(settings, apis=chosen_apis(apis))
    else:
        settings = Settings(
            **common,
            apis=chosen_apis(apis),
            advertise_url=advertise_url,
            leader_elect=leader_elect,
            concurrency=concurrency,
            webhooks=webhooks,
            remote_exec=remote_exec,
            ssh_keys=ssh_keys,
        )
    settings = apply_config_file(config, settings)
    if cluster_domain:
        settings = replace(settings, cluster_domain=cluster_domain)
    if gang_backend:
        settings = replace(settings, gang_backend=gang_backend)
    settings = _with_node_rules(settings, notice_taints, cordon_is_notice, quarantine)
    settings = replace(settings, identity=identity or settings.identity)
    if helper_image:
        settings = replace(settings, helper=msgspec.structs.replace(settings.helper, image=helper_image))
    run_operator(settings)


def _with_node_rules(settings: "Settings", taints: str | None, cordon: bool, quarantine: str) -> "Settings":
    """Return the settings with what announces the end of nodes, and which of them are avoided."""
    from dataclasses import replace

    from argosy.workload.announcements import DEFAULT_TAINTS, NoticeRules, parse_taints
    from argosy.workload.quarantine import parse_rules

    try:
        notices = NoticeRules(DEFAULT_TAINTS if taints is None else parse_taints(taints), cordon)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--notice-taints") from None
    try:
        return replace(settings, notices=notices, quarantine=parse_rules(quarantine))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--quarantine") from None
