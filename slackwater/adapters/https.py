"""Serve one WSGI application over TLS: gunicorn, embedded, with the settings that Kubernetes' clients need.

Called by the webhook and the extender, whose callers are Go programs with long-lived connections:

* ``keepalive`` 120 s: the Go client keeps idle connections for 90 s and does not repeat a POST whose connection the
  server has just closed; gunicorn's default of 2 s loses such calls.
* one worker process, several threads: the copies of the cluster's objects and all counters exist once.
* certificates are read again when their files change, and parsed once per change instead of once per connection.
* SIGTERM keeps serving for ``linger_s``: endpoints and idle connections elsewhere learn of the end a little later.

The process first waits for its certificate files (the controller's leader makes them), and says so in its log and on
``/readyz``. Everything that the service needs (threads, watches, counters) is made by ``start`` inside the worker,
after the fork.
"""

import logging
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger

from slackwater.adapters.logs import kv
from slackwater.adapters.metrics import Checks, serve_observability

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_LOG = logging.getLogger("slackwater.https")

CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"

_KEEPALIVE_S = 120
"""Above the 90 s for which Go's http.Transport keeps an idle connection."""
_LINGER_S = 5.0
"""How long a terminating pod still serves: the kubelet's signal and the endpoint's removal race each other."""
_GRACE_S = 10
"""For requests still running after that."""
_WORKER_TIMEOUT_S = 60
"""A worker without a heartbeat for this long is replaced. The heartbeat does not wait for handlers."""
_LOOK_AGAIN_S = 0.5
"""Between two looks at missing certificate files."""
_REMIND_S = 30.0
"""Between two log lines about them."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the worker serves: the application, and what keeps it from being ready (nothing = ready)."""

    app: "WSGIApplication"
    ready: Checks


def serve(
    start: Callable[[], Service],
    *,
    port: int,
    tls_dir: Path,
    metrics_port: int,
    threads: int = 8,
    linger_s: float = _LINGER_S,
) -> None:
    """Serve ``start()`` on ``port`` with ``tls.crt`` and ``tls.key`` of ``tls_dir`` until SIGTERM; blocks.

    ``start`` runs once in the worker process. ``/metrics``, ``/livez`` and ``/readyz`` are served on ``metrics_port``,
    also while the certificate is awaited. Call from the main thread of a process without other threads (it forks).

    Raises:
        SystemExit: with gunicorn's status when the server ends; 0 after a SIGTERM.
    """
    if not _wait_for_certificate(tls_dir, metrics_port):
        return
    _LingeringArbiter(_Application(start, port, tls_dir, metrics_port, threads), linger_s).run()


def certificate_problem(tls_dir: Path) -> str:
    """Why the certificate and key in ``tls_dir`` cannot be served; empty if they can."""
    missing = [name for name in (CERTIFICATE_FILE, KEY_FILE) if not (tls_dir / name).exists()]
    if missing:
        return f"waiting for {' and '.join(missing)} in {tls_dir}; the controller's leader makes them"
    try:
        _load(tls_dir)
    except (OSError, ssl.SSLError) as error:
        return f"{CERTIFICATE_FILE} and {KEY_FILE} in {tls_dir} cannot be used: {error}"
    return ""


def _load(tls_dir: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls_dir / CERTIFICATE_FILE, tls_dir / KEY_FILE)
    return context


def _wait_for_certificate(tls_dir: Path, metrics_port: int) -> bool:
    """True once the files can be served; False if SIGTERM came first."""
    problem = certificate_problem(tls_dir)
    if not problem:
        return True
    stop = threading.Event()
    # As process 1 of a container we would otherwise ignore the signal.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = serve_observability(metrics_port, ready=lambda: (problem,))
    reminded_at = float("-inf")
    try:
        while problem and not stop.is_set():
            if time.monotonic() - reminded_at >= _REMIND_S:
                reminded_at = time.monotonic()
                _LOG.warning("not serving yet", extra=kv(problem=problem))
            stop.wait(_LOOK_AGAIN_S)
            problem = certificate_problem(tls_dir)
    finally:
        server.close()
    return not stop.is_set()


class _Certificates:
    """The TLS context of the files now; parsed again only when they changed."""

    def __init__(self, tls_dir: Path) -> None:
        self._tls_dir = tls_dir
        self._lock = threading.Lock()
        self._stamp: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """For one new connection. A broken new pair is logged, and the last good one is kept."""
        with self._lock:
            try:
                stamp = self._stamp_now()
                if self._context is None or stamp != self._stamp:
                    self._context, known = _load(self._tls_dir), self._stamp
                    if known:
                        _LOG.info("serving a new certificate", extra=kv(folder=self._tls_dir))
                    self._stamp = stamp
            except (OSError, ssl.SSLError) as error:
                if self._context is None:
                    raise
                _LOG.warning("new certificate cannot be used, keeping the old one", extra=kv(error=error))
            return self._context

    def _stamp_now(self) -> tuple[object, ...]:
        # A mounted Secret is replaced by swinging a link: inode and time of the target both change.
        stats = [os.stat(self._tls_dir / name) for name in (CERTIFICATE_FILE, KEY_FILE)]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


class _RootLogger(Logger):  # type: ignore[misc]  # gunicorn is untyped
    """gunicorn's own lines go where every other line of the process goes, in the same form."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        self.loglevel = logging.WARNING
        self.error_log.setLevel(self.loglevel)
        self.error_log.propagate = True


class _Application(BaseApplication):  # type: ignore[misc]  # gunicorn is untyped
    def __init__(self, start: Callable[[], Service], port: int, tls_dir: Path, metrics_port: int, threads: int) -> None:
        self._start = start
        self._metrics_port = metrics_port
        certificates = _Certificates(tls_dir)
        self._settings: dict[str, Any] = {
            "bind": f"0.0.0.0:{port}",
            "workers": 1,
            "worker_class": "gthread",
            "threads": threads,
            "keepalive": _KEEPALIVE_S,
            "timeout": _WORKER_TIMEOUT_S,
            "graceful_timeout": _GRACE_S,
            "certfile": str(tls_dir / CERTIFICATE_FILE),
            "keyfile": str(tls_dir / KEY_FILE),
            "ssl_context": lambda _config, _default: certificates.context(),
            "logger_class": _RootLogger,
            "control_socket_disable": True,
            # The heartbeat file: in memory, and writable where the root file system is read-only.
            "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108  a tmpfs, unlinked at once
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> "WSGIApplication":
        """Called by gunicorn in the worker process."""
        service = self._start()
        serve_observability(self._metrics_port, ready=service.ready)
        _LOG.info("serving", extra=kv(address=self._settings["bind"], threads=self._settings["threads"]))
        return service.app


class _LingeringArbiter(Arbiter):  # type: ignore[misc]  # gunicorn is untyped
    """gunicorn's parent process; the first SIGTERM starts the linger, a second one ends it."""

    def __init__(self, app: BaseApplication, linger_s: float) -> None:
        self._linger_s = linger_s
        self._end_at: float | None = None
        super().__init__(app)

    def handle_term(self) -> None:
        if self._end_at is not None:
            raise StopIteration
        self._end_at = time.monotonic() + self._linger_s
        _LOG.info("asked to end, still serving", extra=kv(seconds=self._linger_s))

    def murder_workers(self) -> None:
        """Called by gunicorn in every turn of its loop (about once a second)."""
        super().murder_workers()
        if self._end_at is not None and time.monotonic() >= self._end_at:
            raise StopIteration
