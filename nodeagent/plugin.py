"""The device plugin that the kubelet talks to: a thin gRPC shell over the ledger. One asyncio loop owns all of it.

Allocate and GetPreferredAllocation run inside the kubelet's pod admission, one at a time and without a timeout: a
plugin that hangs stops every pod start of the node. So they answer from memory and never fail.
"""

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import grpc

from nodeagent import wire
from nodeagent.decide.allocate import environment, prefer
from nodeagent.metrics import Metrics
from slackwater.adapters.logs import kv
from slackwater.errors import Unavailable
from slackwater.ledger import Ledger

_LOG = logging.getLogger("slackwater.nodeagent.plugin")

OPTIONS: Final = wire.PluginOptions(pre_start_required=False, preferred_allocation=True)
"""Sent with the registration and answered to GetDevicePluginOptions; the kubelet believes only the latter.

No PreStartContainer: a container could not restart while the agent is away. The kubelet itself writes the limit.
"""
_SERVICE: Final = "v1beta1.DevicePlugin"


class Books:
    """The one ledger, and a bell for those who wait for its changes. Touched from the event loop only."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed = asyncio.Condition()
        self.version = 0
        """Counts the lists that a kubelet would see differently."""
        self.allocations = 0
        self.devices = _devices(ledger)

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    async def replace(self, ledger: Ledger) -> bool:
        """Take over a new state; True where the device list has changed by it."""
        self._ledger = ledger
        devices = _devices(ledger)
        if devices == self.devices:
            return False
        self.devices = devices
        async with self._changed:
            self.version += 1
            self._changed.notify_all()
        return True

    async def assign(self, ids: Sequence[str], at_s: float) -> None:
        """The kubelet has given these ids away. Cheap where all were on offer: then the list stays as it is."""
        self.allocations += 1
        before = self._ledger.blocks
        assigned = self._ledger.assign(ids, at_s)
        if all(name in before and before[name].healthy for name in ids):
            self._ledger = assigned
        else:
            await self.replace(assigned)

    async def wait_beyond(self, version: int) -> int:
        """Return as soon as the list is newer than ``version``."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version > version)
            return self.version


def _devices(ledger: Ledger) -> bytes:
    return wire.encode_devices(wire.Device(block.id, block.healthy, block.numa) for block in ledger.blocks.values())


class DevicePlugin:
    """One server on one socket; made anew for each registration (see :mod:`nodeagent.register` for why)."""

    def __init__(self, books: Books, socket_path: Path, block_size: int, metrics: Metrics) -> None:
        self._books = books
        self._path = socket_path
        self._block_size = block_size
        self._metrics = metrics
        self._server: grpc.aio.Server | None = None
        self.open_streams = 0

    async def start(self) -> None:
        """Bind the socket and serve.

        Raises:
            Unavailable: another agent answers on the socket, or it cannot be bound.
        """
        if _is_answering(self._path):
            raise Unavailable(f"another device plugin answers on {self._path}; is a second agent running on this node?")
        server = grpc.aio.server()
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(self._options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
            "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(self._prefer),
            "Allocate": grpc.unary_unary_rpc_method_handler(self._allocate),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        try:
            server.add_insecure_port(f"unix://{self._path}")
        except RuntimeError as error:
            raise Unavailable(f"cannot bind {self._path}: {error}; is the directory mounted and writable?") from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End every stream and the server. gRPC then removes the socket's file, whoever owns it: stop before start."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)

    # -- the kubelet's calls ------------------------------------------------------------------------------------

    async def _options(self, _request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return wire.encode_options(OPTIONS)

    async def _list_and_watch(
        self, _request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        """The newest list at once, then again on each change; whoever reads slowly misses the states in between."""
        self.open_streams += 1
        self._metrics.streams.inc()
        _LOG.info("the kubelet watches", extra=kv(streams=self.open_streams))
        try:
            while True:
                version = self._books.version
                self._metrics.updates.inc()
                yield self._books.devices
                await self._books.wait_beyond(version)
        finally:
            self.open_streams -= 1
            self._metrics.streams.dec()
            _LOG.info("the kubelet's watch has ended", extra=kv(streams=self.open_streams))

    async def _prefer(self, request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        began = time.perf_counter()
        try:
            numa_of = {name: block.numa for name, block in self._books.ledger.blocks.items()}
            return wire.encode_preferred_response(
                prefer(wanted.available, wanted.must_include, wanted.size, numa_of)
                for wanted in wire.decode_preferred_request(request)
            )
        except Exception:  # noqa: BLE001  see below; logged with its traceback
            # After an error the kubelet keeps the blocks as allocated until some pod goes; an empty answer is fine.
            _LOG.exception("no preference could be computed")
            return wire.EMPTY
        finally:
            self._metrics.plugin_seconds.labels("GetPreferredAllocation").observe(time.perf_counter() - began)

    async def _allocate(self, request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        began = time.perf_counter()
        containers = wire.decode_allocate_request(request)
        ids = [name for container in containers for name in container]
        await self._books.assign(ids, time.monotonic())
        answer = wire.encode_allocate_response(environment(len(names), self._block_size) for names in containers)
        seconds = time.perf_counter() - began
        self._metrics.plugin_seconds.labels("Allocate").observe(seconds)
        _LOG.info("allocated", extra=kv(blocks=len(ids), first=ids[0] if ids else "", seconds=round(seconds, 6)))
        return answer


def _is_answering(path: Path) -> bool:
    """Whether a live server owns this path; a file that a killed agent left behind does not count."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(os.fspath(path))
        except OSError as error:
            return error.errno == errno.EAGAIN  # its backlog is full: somebody is there
        return True
