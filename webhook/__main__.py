"""``python -P -m webhook``: the admission webhook as a process."""

import threading
from pathlib import Path
from typing import Literal

import click
from prometheus_client import REGISTRY

from slackwater import names
from slackwater.adapters import logs
from slackwater.adapters.https import Service, serve
from slackwater.adapters.kube import KubeClient
from slackwater.quantity import QuantityError, format_quantity, parse_bytes
from webhook.app import create_app
from webhook.context import ClusterContext
from webhook.decide import SYSTEM_NAMESPACES, Settings

_PAGE = 4096


def _block_size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    try:
        size = parse_bytes(value)
    except QuantityError as error:
        raise click.BadParameter(str(error)) from error
    if size <= 0 or size % _PAGE:
        raise click.BadParameter(f"{value} is not a multiple of {_PAGE} bytes above 0")
    return size


@click.command(
    "webhook",
    context_settings={
        "auto_envvar_prefix": "SLACKWATER",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "show_default": True,
    },
)
@click.option("--port", type=click.IntRange(1, 65535), default=8443, help="HTTPS: POST /mutate, GET /readyz.")
@click.option(
    "--tls-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default="/etc/slackwater/tls",
    help="Holds tls.crt and tls.key; may be empty at the start, and may change later.",
)
@click.option("--metrics-port", type=click.IntRange(1, 65535), default=9465, help="HTTP: /metrics, /livez, /readyz.")
@click.option(
    "--block-size",
    metavar="QUANTITY",
    callback=_block_size,
    default=format_quantity(names.DEFAULT_BLOCK_SIZE),
    help="Bytes of one block of lent memory; the same in every component.",
)
@click.option(
    "--scheduler-name",
    default=names.SCHEDULER_NAME,
    help="Scheduler for pods with blocks that ask for none; empty = leave it alone.",
)
@click.option("--namespace", default=names.SYSTEM_NAMESPACE, help="Our own namespace; its pods are left alone.")
@click.option(
    "--kubeconfig", default=None, help="Outside a pod: the cluster to read from; default: KUBECONFIG or ~/.kube/config."
)
@click.option("--threads", type=click.IntRange(1, 256), default=8, help="Requests handled at the same time.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json")
def main(
    port: int,
    tls_dir: Path,
    metrics_port: int,
    block_size: int,
    scheduler_name: str,
    namespace: str,
    kubeconfig: str | None,
    threads: int,
    log_format: Literal["json", "text"],
) -> None:
    """Admit pods: give best-effort ones their class, their priority and blocks of lent memory.

    Reads ColocationProfiles (also Koordinator's), PriorityClasses and Namespaces of the cluster that the pod's service
    account or kubeconfig names, and changes nothing itself. Every option can also be set as SLACKWATER_<OPTION>.
    """
    logs.setup(log_format)
    settings = Settings(block_size, scheduler_name, SYSTEM_NAMESPACES | {namespace})

    def start() -> Service:
        context = ClusterContext(KubeClient.connect(kubeconfig), settings, REGISTRY)
        context.start(threading.Event())  # until the process ends
        return Service(create_app(context, REGISTRY), context.problems)

    serve(start, port=port, tls_dir=tls_dir, metrics_port=metrics_port, threads=threads)


if __name__ == "__main__":
    main()
