"""A host in a folder: the kernel's files as a node agent reads them, for both cgroup versions and both drivers.

Plain files, so nothing is enforced: what the kernel would refuse or reclaim is shown on real kernels elsewhere.
"""

from dataclasses import dataclass
from pathlib import Path

from slackwater.cgroup.layout import Driver, pod_directories
from slackwater.cgroup.parse import Version

MIB = 1024 * 1024
GIB = 1024 * MIB
_QOS_INDEX = {"Guaranteed": 0, "Burstable": 1, "BestEffort": 2}


@dataclass
class HostFiles:
    """Writes below ``root``. Sizes in bytes."""

    root: Path
    version: Version = Version.V2
    driver: Driver = Driver.CGROUPFS
    kubelet_root: str = ""

    def __post_init__(self) -> None:
        self.memory_root.mkdir(parents=True, exist_ok=True)
        if self.version is Version.V2:
            (self.memory_root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        else:
            self._write_stat(self.memory_root, 0, 0)

    @property
    def memory_root(self) -> Path:
        return self.root / "sys/fs/cgroup" / ("memory" if self.version is Version.V1 else "")

    @property
    def limit_file(self) -> str:
        return "memory.limit_in_bytes" if self.version is Version.V1 else "memory.max"

    def machine(self, capacity: int, used: int, *, cache: int = 0) -> None:
        """``/proc/meminfo``: ``cache`` can be dropped and so is available."""
        free = capacity - used - cache
        self._replace(
            self.root / "proc/meminfo",
            f"MemTotal: {capacity // 1024} kB\nMemFree: {free // 1024} kB\n"
            f"MemAvailable: {(free + cache) // 1024} kB\nCached: {cache // 1024} kB\nHugetlb: 0 kB\n",
        )

    def numa(self, number: int, capacity: int, used: int, *, cache: int = 0) -> None:
        """``/sys/devices/system/node/nodeN/meminfo``."""
        lines = {
            "MemTotal": capacity,
            "MemFree": capacity - used - cache,
            "Active(file)": cache // 2,
            "Inactive(file)": cache - cache // 2,
            "SReclaimable": 0,
        }
        self._replace(
            self.root / f"sys/devices/system/node/node{number}/meminfo",
            "".join(f"Node {number} {name}: {value // 1024} kB\n" for name, value in lines.items()),
        )

    def cgroup(self, relative: str, *, used: int, cache: int = 0, limit: int | None = None) -> Path:
        """Any cgroup below the memory hierarchy."""
        directory = self.memory_root / relative
        directory.mkdir(parents=True, exist_ok=True)
        self._write_stat(directory, used, cache)
        usage = "memory.usage_in_bytes" if self.version is Version.V1 else "memory.current"
        self._replace(directory / usage, f"{used + cache}\n")
        self.set_limit(directory, limit)
        return directory

    def pod(self, uid: str, *, used: int, cache: int = 0, qos: str = "BestEffort", limit: int | None = None) -> Path:
        """The pod's directory as the kubelet of this driver names it."""
        directories = [path for driver, path in pod_directories(self.kubelet_root, uid) if driver is self.driver]
        return self.cgroup(directories[_QOS_INDEX[qos]], used=used, cache=cache, limit=limit)

    def container(self, pod: Path, runtime_id: str, *, used: int = 0, limit: int | None = None) -> Path:
        """A container's directory inside ``pod``."""
        name = runtime_id if self.driver is Driver.CGROUPFS else f"cri-containerd-{runtime_id}.scope"
        return self.cgroup(str((pod / name).relative_to(self.memory_root)), used=used, limit=limit)

    def set_limit(self, directory: Path, limit: int | None) -> None:
        unlimited = "9223372036854771712" if self.version is Version.V1 else "max"
        self._replace(directory / self.limit_file, f"{unlimited if limit is None else limit}\n")

    def read_limit(self, directory: Path) -> str:
        return (directory / self.limit_file).read_text().strip()

    def _write_stat(self, directory: Path, used: int, cache: int) -> None:
        prefix = "total_" if self.version is Version.V1 else ""
        lines = {
            "inactive_anon": used // 2,
            "active_anon": used - used // 2,
            "inactive_file": cache // 2,
            "active_file": cache - cache // 2,
            "unevictable": 0,
        }
        self._replace(directory / "memory.stat", "".join(f"{prefix}{name} {value}\n" for name, value in lines.items()))

    def _replace(self, file: Path, text: str) -> None:
        """As the kernel's files never are seen half written."""
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_text(text)
        fresh.replace(file)
