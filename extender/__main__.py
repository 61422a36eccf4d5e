"""``python -P -m extender``: serve the scheduler extender."""

import threading
from pathlib import Path
from typing import Literal

import click
from prometheus_client import REGISTRY

from extender.app import create_app
from extender.metrics import Metrics
from extender.observe import Cluster
from extender.pending import PendingPods
from slackwater import names
from slackwater.adapters import https, logs
from slackwater.adapters.kube import KubeClient
from slackwater.errors import Unavailable
from slackwater.quantity import QuantityError, format_quantity, parse_bytes


def _bytes(_context: click.Context, _option: click.Parameter, value: str) -> int:
    try:
        size = parse_bytes(value)
    except QuantityError as error:
        raise click.BadParameter(str(error)) from error
    if size <= 0:
        raise click.BadParameter(f"{value} is not above 0")
    return size


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--port", default=8444, show_default=True, help="HTTPS port for the scheduler.")
@click.option(
    "--tls-dir",
    type=click.Path(path_type=Path),
    default="/etc/slackwater/tls",
    show_default=True,
    help="Folder with tls.crt and tls.key; waits until they are there, follows their rotation.",
)
@click.option(
    "--block-size",
    metavar="QUANTITY",
    callback=_bytes,
    default=format_quantity(names.DEFAULT_BLOCK_SIZE),
    show_default=True,
    help="Bytes of one block, for pods that do not carry it.",
)
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Outside a pod: how to reach the cluster.")
@click.option("--metrics-port", default=9465, show_default=True, help="Port of /metrics, /livez and /readyz.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
def main(
    port: int,
    tls_dir: Path,
    block_size: int,
    kubeconfig: str | None,
    metrics_port: int,
    log_format: Literal["json", "text"],
) -> None:
    """Answer a kube-scheduler's filter calls: which nodes have blocks for this pod, by their live readings.

    Every option can also be set as an environment variable: SLACKWATER_PORT, SLACKWATER_TLS_DIR and so on.
    """
    logs.setup(log_format)
    try:
        client = KubeClient.connect(kubeconfig)
    except Unavailable as error:
        raise click.ClickException(str(error)) from error

    def start() -> https.Service:
        cluster = Cluster(client, block_size)
        metrics = Metrics(REGISTRY, known_nodes=cluster.known_nodes, assumed_pods=cluster.assumed_pods)
        stop = threading.Event()
        cluster.start(stop)
        PendingPods(client, cluster, metrics, block_size).start(stop)
        return https.Service(create_app(cluster.filter, cluster.not_ready, metrics), cluster.not_ready)

    https.serve(start, port=port, tls_dir=tls_dir, metrics_port=metrics_port)


if __name__ == "__main__":
    main(auto_envvar_prefix="SLACKWATER")
