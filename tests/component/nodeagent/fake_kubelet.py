"""A kubelet's device manager over real sockets: registration, ListAndWatch, allocation, pod-resources, checkpoint.

It behaves as Kubernetes 1.36 does where that matters: it dials back and asks for the options before it answers
Register, never redials, keeps capacity but loses all health when the stream ends, and empties its directory when it
restarts.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from nodeagent import wire

RESOURCE = "slackwater.io/colocation-memory"


@dataclass
class Plugin:
    """One registered endpoint and everything its stream has said."""

    registration: wire.Registration
    options: wire.PluginOptions
    channel: grpc.Channel
    lists: list[tuple[wire.Device, ...]] = field(default_factory=list)
    ended: bool = False

    def call(self, method: str, request: bytes) -> bytes:
        return _unary(self.channel, f"/v1beta1.DevicePlugin/{method}", request)


class FakeKubelet:
    """Start it, then allocate; :meth:`restart` and :meth:`stop` as a real one would."""

    def __init__(self, directory: Path) -> None:
        self.plugin_dir = directory / "device-plugins"
        self.pod_resources_socket = directory / "pod-resources" / "kubelet.sock"
        self.plugin_dir.mkdir(parents=True, exist_ok=True)
        self.pod_resources_socket.parent.mkdir(parents=True, exist_ok=True)
        self.holdings: dict[tuple[str, str, str, str], tuple[str, ...]] = {}
        """(namespace, pod, uid, container) → ids."""
        self.plugins: list[Plugin] = []
        self.forgetful = False
        """True: the list is empty, as right after a kubelet's start."""
        self.lists_given = 0
        self._servers: list[grpc.Server] = []

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._serve(self.plugin_dir / "kubelet.sock", "v1beta1.Registration", {"Register": self._register})
        self._serve(
            self.pod_resources_socket,
            "v1.PodResourcesLister",
            {"List": self._list, "GetAllocatableResources": self._allocatable},
        )

    def stop(self) -> None:
        for plugin in self.plugins:
            plugin.channel.close()
        for server in self._servers:
            server.stop(None).wait()
        self._servers = []

    def restart(self) -> None:
        """As a kubelet does: old connections die, the directory loses its sockets, the checkpoint stays."""
        self.stop()
        for entry in self.plugin_dir.iterdir():
            if entry.is_socket():
                entry.unlink()
        self.plugins = []
        self.start()

    def break_stream(self) -> None:
        """The connection to the plugin ends although both processes live."""
        self.plugins[-1].channel.close()

    # -- what it believes -----------------------------------------------------------------------------------------

    @property
    def devices(self) -> dict[str, wire.Device]:
        """The newest list; empty where there never was one."""
        if not self.plugins or not self.plugins[-1].lists:
            return {}
        return {device.id: device for device in self.plugins[-1].lists[-1]}

    @property
    def capacity(self) -> int:
        return len(self.devices)

    @property
    def allocatable(self) -> int:
        if not self.plugins or self.plugins[-1].ended:
            return 0
        return sum(device.healthy for device in self.devices.values())

    def used_ids(self) -> set[str]:
        return {name for ids in self.holdings.values() for name in ids}

    def wait_for(self, condition: Any, what: str, timeout_s: float = 10) -> None:
        """Wait until ``condition(self)`` holds."""
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{what} did not happen within {timeout_s} s: capacity {self.capacity}, "
                    f"allocatable {self.allocatable}, registrations {len(self.plugins)}"
                )
            threading.Event().wait(0.02)

    # -- pods -----------------------------------------------------------------------------------------------------

    def allocate(self, namespace: str, pod: str, uid: str, blocks: int, container: str = "app") -> dict[str, str]:
        """Admit a container: prefer, allocate, record. Gives its environment."""
        plugin = self.plugins[-1]
        free = tuple(sorted(d.id for d in self.devices.values() if d.healthy and d.id not in self.used_ids()))
        if len(free) < blocks:
            raise AssertionError(f"UnexpectedAdmissionError: Requested: {blocks}, Available: {len(free)}")
        request = wire.encode_preferred_request([wire.PreferenceRequest(free, (), blocks)])
        (ids,) = wire.decode_preferred_response(plugin.call("GetPreferredAllocation", request))
        answer = plugin.call("Allocate", wire.encode_allocate_request([ids]))
        self.holdings[namespace, pod, uid, container] = ids
        self._write_checkpoint()
        (environment,) = wire.decode_allocate_response(answer)
        return environment

    def end(self, namespace: str, pod: str) -> None:
        """The pod's containers have ended: its ids leave the list, its checkpoint entry lingers."""
        self.holdings = {key: ids for key, ids in self.holdings.items() if key[:2] != (namespace, pod)}

    def _write_checkpoint(self) -> None:
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": RESOURCE,
                "DeviceIDs": {"0": list(ids)},
                "AllocResp": "",
            }
            for (_, _, uid, container), ids in self.holdings.items()
        ]
        document = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1}
        (self.plugin_dir / "kubelet_internal_checkpoint").write_text(json.dumps(document))

    # -- servers --------------------------------------------------------------------------------------------------

    def _serve(self, path: Path, service: str, methods: dict[str, Any]) -> None:
        server = grpc.server(ThreadPoolExecutor(4))
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(call) for name, call in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix://{path}")
        server.start()
        self._servers.append(server)

    def _register(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        registration = wire.decode_registration(request)
        if registration.version != "v1beta1":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "requested API version is not supported")
        channel = grpc.insecure_channel(
            f"unix://{self.plugin_dir / registration.endpoint}", options=[("grpc.default_authority", "localhost")]
        )
        options = _unary(channel, "/v1beta1.DevicePlugin/GetDevicePluginOptions", wire.EMPTY)
        plugin = Plugin(registration, wire.decode_options(options), channel)
        self.plugins.append(plugin)
        threading.Thread(target=self._watch, args=(plugin,), daemon=True).start()
        return wire.EMPTY

    def _watch(self, plugin: Plugin) -> None:
        try:
            method: grpc.UnaryStreamMultiCallable[bytes, bytes] = plugin.channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch"
            )
            for message in method(wire.EMPTY):
                plugin.lists.append(wire.decode_devices(message))
        except (grpc.RpcError, ValueError):
            pass  # the plugin ended the stream, or we closed the channel
        finally:
            plugin.ended = True

    def _list(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        self.lists_given += 1
        if self.forgetful:
            return wire.EMPTY
        return wire.encode_pod_resources(
            wire.ContainerDevices(namespace, pod, container, RESOURCE, ids)
            for (namespace, pod, _, container), ids in self.holdings.items()
        )

    def _allocatable(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        if not self.plugins or self.plugins[-1].ended:
            return wire.EMPTY
        return wire.encode_allocatable(RESOURCE, (d.id for d in self.devices.values() if d.healthy))


def _unary(channel: grpc.Channel, method: str, request: bytes) -> bytes:
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    return call(request, timeout=5)
