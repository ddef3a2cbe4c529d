"""`argosy observer`: answers the pods of AresJobs that wait for others, as its Deployment does."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster; the pod's own by default.",
)
@click.option("--context", help="A context of the kubeconfig.")
@click.option("--namespace", help="Know the jobs of this namespace only.")
@click.option(
    "--operator-namespace",
    default="argosy-system",
    show_default=True,
    help="Where the operator keeps its keys.",
)
@click.option("--name", default="argosy-operator", show_default=True, help="What the operator is called.")
@click.option("--endpoint", default="0.0.0.0:8443", show_default=True, help="Where pods are answered.")
@click.option(
    "--auth",
    type=click.Choice(["token", "none"]),
    default="token",
    show_default=True,
    help="Answer only who has the job's token, or everybody.",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def observer(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    operator_namespace: str,
    name: str,
    endpoint: str,
    auth: str,
    log_format: str,
    log_level: str,
) -> None:
    """Answer pods of AresJobs that wait for other roles, beside an operator on the same cluster."""
    from argosy.engine.kubeconfig import KubeconfigError
    from argosy.engine.loop import run as run_loop
    from argosy.operator.main import run
    from argosy.operator.settings import Settings

    settings = Settings(
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        operator_namespace=operator_namespace,
        name=name,
        apis=frozenset({"ares"}),
        observing=True,
        observer_tokens=auth == "token",
        leader_elect=False,
        endpoint=endpoint,
        health="",
        gangs=False,
        remote_start=False,
        log_format="text" if log_format == "text" else "json",
        log_level=log_level,
    )
    try:
        run_loop(run(settings))
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
