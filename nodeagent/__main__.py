"""``python -P -m nodeagent``: the node agent's command line."""

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any, Literal

import click
from prometheus_client import REGISTRY

from nodeagent.loop import Agent
from nodeagent.metrics import Metrics
from nodeagent.settings import Settings
from slackwater import names
from slackwater.adapters import logs
from slackwater.adapters.cgroups import CgroupTree
from slackwater.adapters.kube import KubeClient
from slackwater.adapters.metrics import serve_observability
from slackwater.errors import Unavailable
from slackwater.quantity import QuantityError, parse_bytes

_LOG = logging.getLogger("slackwater.nodeagent")


class _Bytes(click.ParamType[int | None]):
    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value in ("", None):
            return None
        try:
            amount = parse_bytes(value)
        except QuantityError as error:
            self.fail(f"{error}; write an amount such as 512Mi", param, ctx)
        if amount <= 0:
            self.fail(f"{value!r} is not above 0; write an amount such as 512Mi", param, ctx)
        return amount


class _Seconds(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("", 1.0)):
            if text.endswith(unit):
                try:
                    seconds = float(text.removesuffix(unit)) * factor
                except ValueError:
                    break
                if 0 <= seconds < float("inf"):
                    return seconds
                break
        return self.fail(f"{value!r} is not a duration; write one such as 10s, 500ms or 2m", param, ctx)


def _positive(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if value <= 0:
        raise click.BadParameter("must be above 0", ctx, param)
    return value


_BYTES, _SECONDS = _Bytes(), _Seconds()


@click.command(context_settings={"auto_envvar_prefix": "SLACKWATER", "show_default": True, "max_content_width": 120})
@click.option("--node-name", required=True, envvar=["NODE_NAME", "SLACKWATER_NODE_NAME"], help="Name of this Node.")
@click.option(
    "--mode",
    type=click.Choice(["lend", "observe"]),
    default="lend",
    help="lend: offer blocks, guard limits, evict. observe: publish what would be lent and evicted, touch nothing.",
)
@click.option("--block-size", type=_BYTES, default="512Mi", help="Bytes of one block.")
@click.option(
    "--host-root",
    type=click.Path(path_type=Path),
    default="/",
    help="Where the host's / is mounted; sys/fs/cgroup (writable), sys/devices/system/node and proc are read below it.",
)
@click.option("--kubelet-cgroup-root", default="", help="The kubelet's --cgroup-root, such as /kubelet.")
@click.option(
    "--node-cgroup",
    default="",
    help="A cgroup that stands for this node, where several nodes share a machine. Empty: the whole machine.",
)
@click.option(
    "--node-capacity",
    type=_BYTES,
    default="",
    help="Memory of this node. Empty: the machine's, or the limit of --node-cgroup.",
)
@click.option(
    "--device-plugin-dir",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/device-plugins",
    help="The kubelet's directory for device plugins (a constant, whatever its --root-dir).",
)
@click.option(
    "--pod-resources-socket",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/pod-resources/kubelet.sock",
    help="The kubelet's pod-resources socket.",
)
@click.option(
    "--config-map",
    default=f"{names.SYSTEM_NAMESPACE}/{names.SLO_CONFIG_MAP}",
    help="NAMESPACE/NAME of the ConfigMap with colocation-config and resource-threshold-config.",
)
@click.option("--refresh-interval", type=_SECONDS, default="10s", callback=_positive, help="Between whole readings.")
@click.option(
    "--guard-interval", type=_SECONDS, default="500ms", callback=_positive, help="Between looks at the node's use."
)
@click.option("--grow-interval", type=_SECONDS, default="60s", help="Least time between two growths of the offer.")
@click.option("--publish-interval", type=_SECONDS, default="120s", callback=_positive, help="NodeSlack's sign of life.")
@click.option("--eviction-cooling", type=_SECONDS, default="4s", help="Between two rounds of evictions.")
@click.option("--avoid-for", type=_SECONDS, default="5m", help="How long an evicted pod's owner avoids this node.")
@click.option("--kubeconfig", default=None, help="A kubeconfig file. Default: the pod's service account.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=9465, help="/metrics, /livez and /readyz.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json")
def main(
    *,
    mode: Literal["lend", "observe"],
    config_map: str,
    kubeconfig: str | None,
    log_format: Literal["json", "text"],
    **options: Any,
) -> None:
    """Lend this node's slack memory in blocks, hold pods to theirs, and take it back by eviction when it is needed.

    Every option may also be given as an environment variable: --node-cgroup is SLACKWATER_NODE_CGROUP.
    """
    namespace, _, name = config_map.partition("/")
    if not namespace or not name:
        raise click.BadParameter(f"{config_map!r} is not NAMESPACE/NAME", param_hint="--config-map")
    logs.setup(log_format)
    settings = Settings(
        mode=mode,
        config_map_namespace=namespace,
        config_map_name=name,
        **{key.replace("_interval", "_interval_s"): value for key, value in options.items() if key in _SAME},
        eviction_cooling_s=options["eviction_cooling"],
        avoid_for_s=options["avoid_for"],
    )
    try:
        tree = CgroupTree(
            settings.host_root,
            kubelet_root=settings.kubelet_cgroup_root,
            node_cgroup=settings.node_cgroup,
            node_capacity=settings.node_capacity,
        )
        client = KubeClient.connect(kubeconfig)
    except Unavailable as error:
        _LOG.error("cannot start: %s", error)
        sys.exit(1)
    asyncio.run(_run(settings, client, tree))


_SAME = (
    "node_name",
    "block_size",
    "host_root",
    "kubelet_cgroup_root",
    "node_cgroup",
    "node_capacity",
    "device_plugin_dir",
    "pod_resources_socket",
    "refresh_interval",
    "guard_interval",
    "grow_interval",
    "publish_interval",
    "metrics_port",
)
"""Options that are fields of :class:`Settings` by name (durations get ``_s``)."""


async def _run(settings: Settings, client: KubeClient, tree: CgroupTree) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    agent = Agent(settings, client, tree, Metrics(REGISTRY))
    server = serve_observability(settings.metrics_port, ready=agent.unready, alive=agent.dead)
    _LOG.info(
        "node agent starts",
        extra=logs.kv(node=settings.node_name, mode=settings.mode, cgroup=str(tree.version), port=server.port),
    )
    try:
        await agent.run(stop)
    finally:
        server.close()
    _LOG.info("node agent ends")


if __name__ == "__main__":
    main()
