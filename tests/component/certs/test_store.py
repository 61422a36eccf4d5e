"""The certificates as they stand in the cluster, through their whole life and with two writers at once."""

import base64
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from component.apiserver import ApiServer
from cryptography import x509

from certs.decide import CA_LIFETIME
from certs.issue import names_of
from certs.store import Names, ensure, service_names
from slackwater.adapters.kube import ApiUnavailable, KubeClient

SECRETS = "/api/v1/namespaces/slackwater-system/secrets"
CA, TLS = f"{SECRETS}/slackwater-ca", f"{SECRETS}/slackwater-tls"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SERVED = service_names("slackwater-webhook", "slackwater-system") | {"localhost", "127.0.0.1"}
DOMAINS = frozenset({"slackwater-webhook", "slackwater-system", "slackwater-system.svc", "localhost"})
NAMES = Names(
    "slackwater-system", "slackwater-ca", "slackwater-tls", SERVED,
    DOMAINS | {"slackwater-system.svc.cluster.local"},
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def client(server: ApiServer, tmp_path: Path) -> KubeClient:
    return KubeClient.connect(server.kubeconfig(tmp_path / "kubeconfig"))


def data(server: ApiServer, path: str) -> dict[str, bytes]:
    secret = server.get(path)
    assert secret is not None
    return {key: base64.b64decode(value) for key, value in secret["data"].items()}


def writes(server: ApiServer) -> int:
    return sum(len(server.calls(method, "/secrets")) for method in ("POST", "PUT", "PATCH", "DELETE"))


def certificates(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def verify(server: ApiServer, bundle: bytes) -> None:
    """What is served belongs together, and no key of a CA has left the CA's Secret."""
    ca, tls = data(server, CA), data(server, TLS)
    (leaf,) = certificates(tls["tls.crt"])
    leaf.verify_directly_issued_by(certificates(ca["tls.crt"])[0])
    assert bundle == tls["ca.crt"]
    assert certificates(ca["tls.crt"])[0] in certificates(bundle)
    assert set(tls) == {"tls.crt", "tls.key", "ca.crt"}
    assert b"PRIVATE" not in tls["tls.crt"] + tls["ca.crt"]
    assert tls["tls.key"] not in ca.values()


def test_both_secrets_are_made_where_there_are_none(server: ApiServer, client: KubeClient) -> None:
    bundle = ensure(client, NAMES, NOW)
    verify(server, bundle)
    assert names_of(certificates(data(server, TLS)["tls.crt"])[0]) == SERVED
    secret: Any = server.get(TLS)
    assert secret["type"] == "kubernetes.io/tls"


def test_what_is_in_order_is_not_written_again(server: ApiServer, client: KubeClient) -> None:
    bundle = ensure(client, NAMES, NOW)
    before = server.get(CA), server.get(TLS), writes(server)
    assert ensure(client, NAMES, NOW + 200 * DAY) == bundle
    assert (server.get(CA), server.get(TLS), writes(server)) == before


@pytest.mark.parametrize("reason", ["age", "a name", "lost", "garbage", "another key"])
def test_a_new_serving_certificate_leaves_the_ca_as_it_is(server: ApiServer, client: KubeClient, reason: str) -> None:
    bundle = ensure(client, NAMES, NOW)
    authority, old = server.get(CA), data(server, TLS)["tls.crt"]
    names, now = NAMES, NOW + DAY
    match reason:
        case "age":
            now = NOW + 250 * DAY
        case "a name":
            names = Names("slackwater-system", "slackwater-ca", "slackwater-tls", SERVED | {"10.0.0.9"}, NAMES.domains)
        case "lost":
            server.remove(TLS)
        case "garbage":
            server.edit(TLS, {"data": {"tls.crt": "%%%"}})
        case _:
            server.edit(TLS, {"data": {"tls.key": base64.b64encode(data(server, CA)["tls.key"]).decode()}})
    assert ensure(client, names, now) == bundle
    assert server.get(CA) == authority
    assert data(server, TLS)["tls.crt"] != old
    verify(server, bundle)
    assert names.served <= names_of(certificates(data(server, TLS)["tls.crt"])[0])


def test_a_lost_bundle_is_put_back_without_a_new_certificate(server: ApiServer, client: KubeClient) -> None:
    bundle = ensure(client, NAMES, NOW)
    old = data(server, TLS)
    server.edit(TLS, {"data": {"ca.crt": None}})
    assert ensure(client, NAMES, NOW) == bundle
    assert data(server, TLS) == old


def test_a_lost_ca_is_replaced_and_the_old_one_stays_trusted(server: ApiServer, client: KubeClient) -> None:
    (old,) = certificates(ensure(client, NAMES, NOW))
    server.remove(CA)
    bundle = ensure(client, NAMES, NOW + DAY)
    verify(server, bundle)
    assert old in certificates(bundle)
    assert len(certificates(bundle)) == 2


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
def test_a_ca_that_cannot_be_read_is_replaced(server: ApiServer, client: KubeClient, key: str) -> None:
    ensure(client, NAMES, NOW)
    server.edit(CA, {"data": {key: base64.b64encode(b"garbage").decode()}})
    verify(server, ensure(client, NAMES, NOW + DAY))


def test_over_the_years_every_client_trusts_what_is_served_before_it_is_served(
    server: ApiServer, client: KubeClient
) -> None:
    """Two lives of a CA, a look every thirty days: a client that has the bundle of the look before is never cut off."""
    known = ensure(client, NAMES, NOW)
    authorities = set()
    for day in range(30, 2 * CA_LIFETIME.days, 30):
        now = NOW + day * DAY
        bundle = ensure(client, NAMES, now)
        verify(server, bundle)
        (leaf,) = certificates(data(server, TLS)["tls.crt"])
        (authority,) = certificates(data(server, CA)["tls.crt"])
        authorities.add(authority.serial_number)
        assert leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc <= authority.not_valid_after_utc
        assert authority in certificates(known), f"on day {day} the new CA signs before clients know it"
        assert all(one.not_valid_after_utc > now for one in certificates(bundle))
        known = bundle
    assert len(authorities) == 3


def test_two_writers_at_once_agree(server: ApiServer, tmp_path: Path) -> None:
    path = server.kubeconfig(tmp_path / "kubeconfig")
    bundles: list[bytes] = []
    start = threading.Barrier(4)

    def write() -> None:
        own = KubeClient.connect(path)
        start.wait()
        bundles.append(ensure(own, NAMES, NOW))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = ensure(KubeClient.connect(path), NAMES, NOW)
    verify(server, final)
    assert bundles == [final] * 4


def test_the_loser_takes_over_what_the_winner_wrote(server: ApiServer, client: KubeClient, tmp_path: Path) -> None:
    other = KubeClient.connect(server.kubeconfig(tmp_path / "other"))
    server.before_next("POST", "/secrets", lambda: ensure(other, NAMES, NOW))
    bundle = ensure(client, NAMES, NOW)
    verify(server, bundle)
    assert len(certificates(bundle)) == 1


def test_a_failure_between_the_secrets_is_mended_by_the_next_turn(server: ApiServer, client: KubeClient) -> None:
    def fail_the_second() -> None:
        server.fail_next("POST", "/secrets", 500)

    server.before_next("POST", "/secrets", fail_the_second)
    with pytest.raises(ApiUnavailable):
        ensure(client, NAMES, NOW)
    verify(server, ensure(client, NAMES, NOW))
