"""Certificates as clients see them."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from certs import issue
from certs.decide import CA_LIFETIME, LEAF_LIFETIME
from certs.issue import KeyPair

NOW = datetime.now(UTC).replace(microsecond=0)
NAMES = ["web.system.svc", "localhost", "10.0.0.9"]
CA = issue.new_ca(["system.svc", "localhost"], NOW)
OTHER_CA = issue.new_ca(["system.svc", "localhost"], NOW)
LEAF = issue.new_leaf(CA, NAMES, NOW)


def handshake(leaf: KeyPair, bundle: bytes, name: str, folder: Path) -> None:
    """One TLS handshake in memory, verified as Python's and (here) Go's clients do: chain, constraints and name."""
    (folder / "crt").write_bytes(leaf.certificate)
    (folder / "key").write_bytes(leaf.key)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / "crt", folder / "key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=bundle.decode()).wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_leaf_serves_each_of_its_names(tmp_path: Path) -> None:
    for name in NAMES:
        handshake(LEAF, CA.certificate, name, tmp_path)


def test_leaf_is_refused_for_other_names_and_by_other_cas(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(LEAF, CA.certificate, "other.system.svc", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(LEAF, OTHER_CA.certificate, "localhost", tmp_path)


def test_ca_cannot_sign_for_names_outside_its_domains(tmp_path: Path) -> None:
    stolen = issue.new_leaf(CA, ["kubernetes.default.svc"], NOW)
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
        handshake(stolen, CA.certificate, "kubernetes.default.svc", tmp_path)


def test_bundle_of_two_cas_accepts_leaves_of_both(tmp_path: Path) -> None:
    both = issue.bundle([OTHER_CA.certificate, CA.certificate], NOW)
    handshake(LEAF, both, "localhost", tmp_path)
    handshake(issue.new_leaf(OTHER_CA, NAMES, NOW), both, "localhost", tmp_path)


def test_bundle_drops_repeats_garbage_and_what_has_ended() -> None:
    assert issue.bundle([CA.certificate, b"garbage", b"", CA.certificate + OTHER_CA.certificate], NOW) == (
        CA.certificate + OTHER_CA.certificate
    )
    assert issue.bundle([CA.certificate], NOW + CA_LIFETIME) == b""


def test_what_is_read_is_what_was_issued() -> None:
    ca, leaf = issue.read_ca(CA), issue.read_leaf(LEAF, CA)
    assert ca is not None
    assert leaf is not None
    assert ca.names == frozenset({"system.svc", "localhost"})
    assert ca.not_after == NOW + CA_LIFETIME
    assert leaf.names == frozenset(NAMES)
    assert leaf.not_after == NOW + LEAF_LIFETIME
    assert leaf.signed_by_ca
    certificate = x509.load_pem_x509_certificate(CA.certificate)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


def test_leaf_never_outlives_its_ca() -> None:
    late = NOW + CA_LIFETIME - timedelta(days=3)
    leaf = issue.read_leaf(issue.new_leaf(CA, NAMES, late), CA)
    assert leaf is not None
    assert leaf.not_after == NOW + CA_LIFETIME


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(None, id="missing"),
        pytest.param(KeyPair(b"garbage", CA.key), id="garbage certificate"),
        pytest.param(KeyPair(CA.certificate, b"garbage"), id="garbage key"),
        pytest.param(KeyPair(CA.certificate, OTHER_CA.key), id="another's key"),
        pytest.param(LEAF, id="a leaf in its place"),
    ],
)
def test_unusable_ca_counts_as_missing(pair: KeyPair | None) -> None:
    assert issue.read_ca(pair) is None


def test_leaf_of_another_ca_or_with_another_key_is_told_apart() -> None:
    of_other_ca = issue.read_leaf(LEAF, OTHER_CA)
    with_other_key = issue.read_leaf(KeyPair(LEAF.certificate, CA.key), CA)
    assert of_other_ca is not None
    assert with_other_key is not None
    assert not of_other_ca.signed_by_ca
    assert not with_other_key.signed_by_ca


def test_key_does_not_show_in_text() -> None:
    assert "PRIVATE" not in f"{CA!r} {CA}"
