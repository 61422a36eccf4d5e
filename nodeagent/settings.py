"""How one agent is set up: read once at the start, never changed. Times in seconds, sizes in bytes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from slackwater import names

Mode: TypeAlias = Literal["lend", "observe"]

ENDPOINT: Final = "slackwater.sock"
"""Name of our socket in the device plugin directory."""


@dataclass(frozen=True, slots=True)
class Settings:
    """See ``python -m nodeagent --help`` for each in words."""

    node_name: str
    mode: Mode = "lend"
    block_size: int = names.DEFAULT_BLOCK_SIZE
    host_root: Path = Path("/")
    kubelet_cgroup_root: str = ""
    node_cgroup: str = ""
    node_capacity: int | None = None
    device_plugin_dir: Path = Path("/var/lib/kubelet/device-plugins")
    """A constant of the kubelet, whatever its ``--root-dir``."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    config_map_namespace: str = names.SYSTEM_NAMESPACE
    config_map_name: str = names.SLO_CONFIG_MAP
    refresh_interval_s: float = 10.0
    """As the kubelet's own status loop: the scheduler's view is no newer."""
    guard_interval_s: float = 0.5
    """Node use and limits are looked at this often; an eviction is asked for within twice this."""
    grow_interval_s: float = 60.0
    publish_interval_s: float = 120.0
    """Sign of life in NodeSlack; readers hold 300 s for stale."""
    eviction_cooling_s: float = 4.0
    """koordlet's: a graceful end and the next reading need about that long to show."""
    avoid_for_s: float = 300.0
    """An evicted pod's owner stays away this long."""
    metrics_port: int = 9465

    @property
    def lends(self) -> bool:
        return self.mode == "lend"

    @property
    def plugin_socket(self) -> Path:
        return self.device_plugin_dir / ENDPOINT

    @property
    def kubelet_socket(self) -> Path:
        return self.device_plugin_dir / "kubelet.sock"

    @property
    def checkpoint_file(self) -> Path:
        return self.device_plugin_dir / "kubelet_internal_checkpoint"

    @property
    def stale_after_s(self) -> float:
        """A reading older than three refreshes grows nothing and evicts nobody."""
        return 3 * self.refresh_interval_s
