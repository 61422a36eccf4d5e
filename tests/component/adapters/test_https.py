"""The TLS server that webhook and extender share: a real process, real sockets, real certificates.

Left out: HUP and USR signals of gunicorn, which nothing sends in a pod.
"""

import http.client
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from component.https_process import eventually, free_port, write_certificate
from cryptography import x509
from cryptography.x509.oid import NameOID

_PROGRAM = """
import sys
from pathlib import Path
from slackwater.adapters import logs
from slackwater.adapters.https import Service, serve

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]

logs.setup("text")
serve(lambda: Service(app, lambda: []), port=int(sys.argv[1]), tls_dir=Path(sys.argv[2]),
      metrics_port=int(sys.argv[3]), linger_s=1.5)
"""


class Server:
    def __init__(self, tls_dir: Path, log: Path) -> None:
        self.port, self.metrics_port = free_port(), free_port()
        self._log = log.open("wb")
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(self.port), str(tls_dir), str(self.metrics_port)],
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": "."},
        )

    def status(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=5)
        try:
            connection.request("GET", path)
            with connection.getresponse() as response:
                response.read()
                return response.status
        except OSError:
            return 0
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=context)

    def common_name(self) -> str:
        connection = self.connect()
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        certificate = x509.load_der_x509_certificate(connection.sock.getpeercert(binary_form=True) or b"")
        connection.close()
        return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Path], Server]]:
    servers: list[Server] = []

    def start(tls_dir: Path) -> Server:
        servers.append(Server(tls_dir, tmp_path / f"log-{len(servers)}"))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_waits_for_its_certificate_and_says_so(tmp_path: Path, started: Callable[[Path], Server]) -> None:
    tls = tmp_path / "tls"
    server = started(tls)
    assert eventually(lambda: server.status("/readyz") == 503)
    assert server.status("/livez") == 200
    assert b"waiting for tls.crt and tls.key" in server.log.read_bytes()
    write_certificate(tls, "first")
    assert eventually(lambda: server.status("/readyz") == 200)
    assert server.common_name() == "first"


def test_ends_at_once_while_it_waits(tmp_path: Path, started: Callable[[Path], Server]) -> None:
    server = started(tmp_path / "tls")
    assert eventually(lambda: server.status("/readyz") == 503)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=5) == 0


def test_serves_a_rotated_certificate_and_survives_a_broken_one(
    tmp_path: Path, started: Callable[[Path], Server]
) -> None:
    tls = tmp_path / "tls"
    write_certificate(tls, "first")
    server = started(tls)
    assert eventually(lambda: server.status("/readyz") == 200)
    assert server.common_name() == "first"
    write_certificate(tls, "second")
    assert server.common_name() == "second"
    (tls / "tls.crt").write_text("not a certificate")
    assert server.common_name() == "second"
    write_certificate(tls, "third")
    assert server.common_name() == "third"


def test_a_connection_outlives_the_servers_usual_two_seconds(tmp_path: Path, started: Callable[[Path], Server]) -> None:
    write_certificate(tmp_path / "tls", "first")
    server = started(tmp_path / "tls")
    assert eventually(lambda: server.status("/readyz") == 200)
    connection = server.connect()
    connection.connect()
    first = connection.sock
    for pause in (0.0, 3.0):
        threading.Event().wait(pause)
        connection.request("POST", "/x", b"{}")
        assert connection.getresponse().read() == b"ok"
        assert connection.sock is first
    connection.close()


def test_keeps_serving_for_a_while_after_sigterm_and_then_ends_cleanly(
    tmp_path: Path, started: Callable[[Path], Server]
) -> None:
    write_certificate(tmp_path / "tls", "first")
    server = started(tmp_path / "tls")
    assert eventually(lambda: server.status("/readyz") == 200)
    server.process.send_signal(signal.SIGTERM)
    threading.Event().wait(0.7)
    assert server.common_name() == "first"
    assert server.process.wait(timeout=15) == 0
