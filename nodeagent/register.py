"""Keeping the device plugin registered with the kubelet, whatever happens to either.

A kubelet never looks for a plugin again once its stream has ended; only a new registration helps. Looked at each second
(no inotify: three stats are cheaper than a watcher that can miss events):

* our own socket is gone: a restarting kubelet empties its plugin directory;
* ``kubelet.sock`` is another file (device, inode, ctime): the kubelet was restarted;
* nobody watches our list although we are registered: the stream broke silently;
* the kubelet counts none of our healthy ids: it took the end of an old stream for the end of the new one. Kubernetes
  1.36 does that when a plugin registers while its old stream lives (fixed later by kubernetes/kubernetes#135437).

Because of the last, each registration is a clean sheet: end the old server with its streams, give the kubelet a moment
to notice, bind a new one, and only then register.
"""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Final, TypeAlias

from nodeagent import kubelet, wire
from nodeagent.metrics import Metrics
from nodeagent.plugin import OPTIONS, Books, DevicePlugin
from nodeagent.settings import Settings
from slackwater import names
from slackwater.adapters.logs import kv
from slackwater.errors import Unavailable

_LOG = logging.getLogger("slackwater.nodeagent.register")
_LOOK_EVERY_S: Final = 1.0
_SETTLE_S: Final = 0.25
"""Between the end of an old stream and the next registration: the kubelet handles the end in a goroutine of its own."""
_WATCH_WITHIN_S: Final = 3.0
"""The kubelet opens its stream right after the registration was answered."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0

Identity: TypeAlias = tuple[int, int, int]


class Registrar:
    """Runs the device plugin's server and its registration. Owned by the event loop."""

    def __init__(self, settings: Settings, books: Books, metrics: Metrics) -> None:
        self._settings = settings
        self._books = books
        self._metrics = metrics
        self._plugin: DevicePlugin | None = None
        self._registered_at_s: float | None = None
        self._kubelet: Identity | None = None
        self._own: Identity | None = None
        self._doubt = ""
        self._tried_kubelet: Identity | None = None
        self._try_at_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self.problem = "not registered with the kubelet yet"
        """Why the kubelet does not offer our blocks; empty = it does."""

    def doubt(self, reason: str) -> None:
        """Register again at the next look: the kubelet's numbers do not fit ours."""
        if not self._doubt:
            self._doubt = reason

    @property
    def registered_for_s(self) -> float:
        """Seconds since the last registration; 0 while there is none."""
        return 0.0 if self._registered_at_s is None else time.monotonic() - self._registered_at_s

    async def run(self, stop: asyncio.Event) -> None:
        """Look each second until ``stop`` is set, then end the server."""
        try:
            while not stop.is_set():
                try:
                    await self._look()
                except Exception:  # noqa: BLE001  one broad catch per turn; logged and counted
                    self._metrics.loop_failures.labels("register").inc()
                    _LOG.exception("looking after the registration failed")
                await _wait(stop, _LOOK_EVERY_S)
        finally:
            if self._plugin is not None:
                await self._plugin.stop()

    async def _look(self) -> None:
        kubelet_now = _identity(self._settings.kubelet_socket)
        reason = self._reason_to_register(kubelet_now)
        if not reason:
            self.problem = ""
            if self._plugin is not None and self._plugin.open_streams:
                self._pause_s = _FIRST_PAUSE_S
            return
        self.problem = reason
        if kubelet_now is None:
            self.problem = (
                f"{self._settings.kubelet_socket} does not exist: the kubelet is down, or its directory is elsewhere"
            )
            return
        if kubelet_now != self._tried_kubelet:
            self._try_at_s = 0.0  # another kubelet: what the last one refused tells nothing
            self._pause_s = _FIRST_PAUSE_S
        if time.monotonic() < self._try_at_s:
            return
        self._tried_kubelet = kubelet_now
        self._try_at_s = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        try:
            await self._register(kubelet_now, reason)
        except Unavailable as error:
            self._metrics.registrations.labels("failure").inc()
            self.problem = f"registration failed: {error}"
            _LOG.warning("registration failed", extra=kv(error=str(error), reason=reason, pause_s=self._pause_s))

    def _reason_to_register(self, kubelet_now: Identity | None) -> str:
        if self._plugin is None or self._registered_at_s is None:
            return "not registered with the kubelet yet"
        if kubelet_now != self._kubelet:
            return "the kubelet was restarted"
        if _identity(self._settings.plugin_socket) != self._own:
            return "our socket was removed"
        if self._plugin.open_streams == 0 and self.registered_for_s > _WATCH_WITHIN_S:
            return "the kubelet does not watch our list"
        return self._doubt

    async def _register(self, kubelet_now: Identity, reason: str) -> None:
        self._registered_at_s = None
        if self._plugin is not None:
            had_streams = self._plugin.open_streams > 0
            await self._plugin.stop()
            self._plugin = None
            if had_streams:
                await asyncio.sleep(_SETTLE_S)
        plugin = DevicePlugin(self._books, self._settings.plugin_socket, self._settings.block_size, self._metrics)
        await plugin.start()
        self._plugin = plugin
        self._own = _identity(self._settings.plugin_socket)
        await kubelet.register(
            self._settings.kubelet_socket,
            wire.Registration(self._settings.plugin_socket.name, names.RESOURCE, OPTIONS),
        )
        self._kubelet = kubelet_now
        self._registered_at_s = time.monotonic()
        self._doubt = ""
        self.problem = ""
        self._metrics.registrations.labels("success").inc()
        _LOG.info(
            "registered",
            extra=kv(resource=names.RESOURCE, ids=len(self._books.ledger.blocks), reason=reason),
        )


def _identity(path: Path) -> Identity | None:
    """What tells one socket file from its successor of the same name."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
