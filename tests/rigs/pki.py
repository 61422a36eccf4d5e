"""Certificates, keys and kubeconfigs of a cluster, as kubeadm lays them out, valid for a few days.

Who calls it: the cluster, once per start. Everything is written below one directory that teardown removes.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=30)
#: Clocks of one machine agree, but a certificate of this very second is refused by a reader that rounds.
_BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Paths of a PEM certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """A self-signed CA that issues into `directory`."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        key_usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.files = _write(directory, name, self._certificate, self._key)

    def issue(
        self, file: str, common_name: str, *, organization: str | None = None, names: Sequence[str] = ()
    ) -> KeyPair:
        """A certificate that serves for `names` (DNS names and addresses) and identifies a client as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
        builder = (
            _builder(x509.Name(attributes), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(one) for one in names]), False)
        return _write(self._directory, file, builder.sign(self._key, hashes.SHA256()), key)


def service_account_keys(directory: Path) -> KeyPair:
    """The key pair that signs service account tokens; `certificate` is the bare public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = directory / "service-account.pub"
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    private = directory / "service-account.key"
    _write_private(private, key)
    return KeyPair(public, private)


def write_kubeconfig(path: Path, server: str, authority: KeyPair, client: KeyPair) -> Path:
    """A kubeconfig with everything inside it, readable by its owner only."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rig",
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "client"}}],
        "clusters": [
            {
                "name": "rig",
                "cluster": {"server": server, "certificate-authority-data": _inline(authority.certificate)},
            }
        ],
        "users": [
            {
                "name": "client",
                "user": {
                    "client-certificate-data": _inline(client.certificate),
                    "client-key-data": _inline(client.key),
                },
            }
        ],
    }
    _write_secret(path, yaml.safe_dump(content).encode())
    return path


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(directory: Path, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pair = KeyPair(directory / f"{file}.crt", directory / f"{file}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(pair.key, key)
    return pair


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    _write_secret(path, pem)


def _write_secret(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        output.write(content)


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
