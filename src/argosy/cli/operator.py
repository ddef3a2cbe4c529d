"""`argosy operator`: run the operator against any cluster, as its Deployment does."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster; the pod's own by default.",
)
@click.option("--context", help="A context of the kubeconfig.")
@click.option("--namespace", help="Serve the jobs of this namespace only.")
@click.option(
    "--operator-namespace",
    default="argosy-system",
    show_default=True,
    help="Where the operator keeps its lease, keys and service.",
)
@click.option(
    "--name", default="argosy-operator", show_default=True, help="What the lease and the service are called."
)
@click.option(
    "--api",
    "apis",
    multiple=True,
    type=click.Choice(["argosy", "ares"]),
    help="Serve this API; all of them by default. May be given several times.",
)
@click.option("--observer", default="", help="The service of observers that answer pods in our place.")
@click.option(
    "--ares-ttl-after-succeeded",
    type=click.FloatRange(0),
    help="Seconds after which pods of AresJobs that succeeded are deleted; never by default.",
)
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True)
@click.option("--identity", help="Name of this replica in the election; host name and process by default.")
@click.option("--helper-image", help="Image of the containers that wait for roles and prepare remote start.")
@click.option(
    "--endpoint", default="0.0.0.0:8443", show_default=True, help="Where helpers in pods are answered."
)
@click.option("--advertise-url", help="Under which URL pods reach the endpoint.")
@click.option(
    "--health", default="0.0.0.0:8080", show_default=True, help="Where probes and metrics are answered."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1024),
    default=32,
    show_default=True,
    help="Jobs worked on at once.",
)
@click.option("--cluster-domain", default="cluster.local", show_default=True)
@click.option("--gangs/--no-gangs", default=True, show_default=True, help="Use PodGroups.")
@click.option(
    "--remote-start/--no-remote-start",
    default=True,
    show_default=True,
    help="Give launchers an account that starts processes in their job's pods.",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--local",
    type=click.Path(file_okay=False, path_type=Path),
    help="Serve the local control plane of this state folder.",
)
def operator(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    operator_namespace: str,
    name: str,
    apis: tuple[str, ...],
    observer: str,
    ares_ttl_after_succeeded: float | None,
    leader_elect: bool,
    identity: str | None,
    helper_image: str | None,
    endpoint: str,
    advertise_url: str | None,
    health: str,
    concurrency: int,
    cluster_domain: str,
    gangs: bool,
    remote_start: bool,
    log_format: str,
    log_level: str,
    local: Path | None,
) -> None:
    """Run the operator against any cluster."""
    from dataclasses import replace

    import msgspec

    from argosy.dialects.registry import APIS
    from argosy.engine.kubeconfig import KubeconfigError
    from argosy.engine.loop import run as run_loop
    from argosy.operator.main import run
    from argosy.operator.settings import Settings, endpoint_url, local_settings

    if local is not None:
        settings = local_settings(local, kubeconfig)
    else:
        settings = Settings(
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            operator_namespace=operator_namespace,
            name=name,
            apis=frozenset(apis or APIS),
            observer=observer,
            ares_ttl_after_succeeded=ares_ttl_after_succeeded,
            advertise_url=endpoint_url(operator_namespace, observer or name),
            leader_elect=leader_elect,
            endpoint=endpoint,
            health=health,
            concurrency=concurrency,
            cluster_domain=cluster_domain,
            gangs=gangs,
            remote_start=remote_start,
            log_format="text" if log_format == "text" else "json",
        )
    if identity:
        settings = replace(settings, identity=identity)
    if helper_image:
        settings = replace(settings, helper=msgspec.structs.replace(settings.helper, image=helper_image))
    if advertise_url:
        settings = replace(settings, advertise_url=advertise_url)
    try:
        run_loop(run(replace(settings, log_level=log_level)))
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
