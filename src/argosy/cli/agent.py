"""`argosy agent`: runs the node agent of one node, as its DaemonSet does."""

import shlex
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import click

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


class _Options(TypedDict):
    """Values of the options that are settings as they are."""

    namespace: str | None
    checkpoints: bool
    checkpoint_folder: Path
    storage_folder: Path
    kubelet_authority: Path | None
    registry_authority: Path | None
    plain_http: tuple[str, ...]
    default_secret: str
    trusted_namespaces: tuple[str, ...]
    restore_capability: str
    log_format: Literal["json", "text"]
    log_level: str


@click.command()
@click.option("--node", required=True, envvar="NODE_NAME", help="Name of the Node of this machine.")
@click.option(
    "--kubeconfig",
    type=FILE,
    help="Path of the kubeconfig file; default: the ServiceAccount of the pod.",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--namespace",
    callback=lambda _context, _parameter, value: value or None,
    help="Make only the checkpoints of this namespace; default: of all.",
)
@click.option(
    "--notices",
    type=click.Choice(["auto", "gce", "ec2", "azure", "none"]),
    default="auto",
    show_default=True,
    help="The cloud whose metadata service announces the end of this machine.",
)
@click.option(
    "--metadata-endpoint",
    default="http://169.254.169.254",
    show_default=True,
    help="URL of the metadata service.",
)
@click.option(
    "--checkpoints/--no-checkpoints",
    "--enable-checkpoint-backup-controller/--disable-checkpoint-backup-controller",
    default=True,
    show_default=True,
    help="Make the checkpoints of CheckpointBackups whose pod is on this node.",
)
@click.option(
    "--checkpoint-folder",
    type=FOLDER,
    default="/var/lib/kubelet/checkpoints",
    show_default=True,
    help="Where the kubelet writes archives of checkpoints.",
)
@click.option(
    "--storage-folder",
    type=FOLDER,
    default="/checkpoint-storage",
    show_default=True,
    help="Where archives are kept of which no images are built.",
)
@click.option(
    "--kubelet-ca",
    "kubelet_authority",
    type=FILE,
    help="CA of the kubelet's certificate, besides that of the cluster.",
)
@click.option(
    "--registry-ca",
    "registry_authority",
    type=FILE,
    help="CA of registries' certificates; default: those of the system.",
)
@click.option(
    "--plain-http-registry",
    "plain_http",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Registry that is reached without TLS, as loopback addresses are; may be repeated.",
)
@click.option(
    "--default-secret",
    default="stateful-migration/registry-credentials",
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="Secret with logins for backups that name none; it must name its registry.",
)
@click.option(
    "--trusted-namespace",
    "trusted_namespaces",
    multiple=True,
    default=["stateful-migration"],
    show_default=True,
    help="Namespace whose backups may name pods and Secrets of others; may be repeated.",
)
@click.option(
    "--restore-capability",
    type=click.Choice(["auto", "image", "pod", "none"]),
    default="auto",
    show_default=True,
    help="What can be restored on this node; auto: what the agent finds out.",
)
@click.option(
    "--host-command",
    default="",
    metavar="COMMAND",
    help="What runs a command on the host, such as `nsenter --target 1 --mount --`.",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def agent(
    node: str,
    kubeconfig: Path | None,
    context: str | None,
    notices: str,
    metadata_endpoint: str,
    host_command: str,
    **options: Unpack[_Options],
) -> None:
    """Announce the end of this machine, and make checkpoints on it."""
    from argosy.agent.main import run
    from argosy.agent.settings import AgentSettings
    from argosy.engine.kubeconfig_entries import KubeconfigError
    from argosy.engine.loop import run as run_loop

    settings = AgentSettings(
        node=node,
        kubeconfig=kubeconfig,
        context=context,
        notices=notices,
        metadata_endpoint=metadata_endpoint,
        host_command=tuple(shlex.split(host_command)),
        **options,
    )
    try:
        run_loop(run(settings))
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
