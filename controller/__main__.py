"""``python -P -m controller``: the controller as a process."""

import os
import signal
import socket
import threading
from typing import Literal

import click

from controller.election import Election
from controller.loop import IdleController
from controller.upkeep import Objects, Upkeep
from slackwater import names
from slackwater.adapters import logs
from slackwater.adapters.kube import KubeClient
from slackwater.adapters.metrics import serve_observability
from slackwater.errors import Unavailable


def _namespaced_name(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, str]:
    namespace, slash, name = value.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME")
    return namespace, name


@click.command(
    "controller",
    context_settings={
        "auto_envvar_prefix": "SLACKWATER",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "show_default": True,
    },
)
@click.option("--namespace", default=names.SYSTEM_NAMESPACE, help="Our own namespace: Secrets, Lease, Services.")
@click.option(
    "--policy-config-map",
    default=f"{names.SYSTEM_NAMESPACE}/{names.IDLE_CONFIG_MAP}",
    metavar="NAMESPACE/NAME",
    callback=_namespaced_name,
    help="The idle policy, key policy.yaml.",
)
@click.option("--tls-secret", default="slackwater-tls", help="Serving certificate, key and CA bundle.")
@click.option("--ca-secret", default="slackwater-ca", help="The CA and its key; mounted nowhere.")
@click.option("--webhook-configuration", default="slackwater", help="MutatingWebhookConfiguration to fill in.")
@click.option("--webhook-rules-config-map", default="slackwater-webhook-rules", help="Its rules, key webhooks.yaml.")
@click.option("--leader-election-lease", default="slackwater-controller", help="Lease that the leader holds.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=9465, help="HTTP: /metrics, /livez, /readyz.")
@click.option(
    "--kubeconfig", default=None, help="Outside a pod: the cluster to work on; default: KUBECONFIG or ~/.kube/config."
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json")
def main(
    namespace: str,
    policy_config_map: tuple[str, str],
    tls_secret: str,
    ca_secret: str,
    webhook_configuration: str,
    webhook_rules_config_map: str,
    leader_election_lease: str,
    metrics_port: int,
    kubeconfig: str | None,
    log_format: Literal["json", "text"],
) -> None:
    """Keep certificates and webhook rules in order, and suspend idle workloads by the policy ConfigMap.

    Several replicas may run; one leads and acts. Every option can also be set as SLACKWATER_<OPTION>.
    """
    logs.setup(log_format)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        client = KubeClient.connect(kubeconfig)
    except Unavailable as error:
        raise click.ClickException(str(error)) from error
    election = Election(client, namespace, leader_election_lease, f"{socket.gethostname()}_{os.getpid()}")
    idle = IdleController(client, *policy_config_map, election.is_leading)
    objects = Objects(namespace, ca_secret, tls_secret, webhook_configuration, webhook_rules_config_map)
    server = serve_observability(metrics_port, ready=idle.problems, alive=idle.stuck)
    # The lease is given back last: whoever takes it must not find us still at work.
    campaign_ends = threading.Event()
    workers = [Upkeep(client, objects, election.is_leading).start(stop), idle.start(stop)]
    campaign = election.start(campaign_ends)
    stop.wait()
    for worker in workers:
        worker.join(timeout=4)
    campaign_ends.set()
    campaign.join(timeout=4)
    server.close()


if __name__ == "__main__":
    main()
