"""Make keys and certificates with ``cryptography``, and read what matters of them. No files and no API calls.

ECDSA P-256 throughout: small, fast to sign with, and supported by every Kubernetes client.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.decide import CA_LIFETIME, CLOCK_ALLOWANCE, LEAF_LIFETIME, Certificate


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM. The key never reaches a log: ``repr`` hides it."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def new_ca(domains: Iterable[str], now: datetime) -> KeyPair:
    """A self-signed CA that may sign leaves only, and only for DNS names at or below ``domains``.

    Addresses are not constrained (RFC 5280 section 4.2.1.10: each form of name stands for itself): a Service's address
    is not known beforehand and may change.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"slackwater-ca {now:%Y-%m-%d}")])
    permitted = [x509.DNSName(domain) for domain in sorted(domains)]
    builder = (
        _builder(name, name, key.public_key(), now, now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def new_leaf(ca: KeyPair, names: Iterable[str], now: datetime) -> KeyPair:
    """A serving certificate of ``ca`` for DNS names and IP addresses; it never outlives the CA."""
    ca_certificate = x509.load_pem_x509_certificate(ca.certificate)
    ca_key = _private_key(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slackwater")])
    end = min(now + LEAF_LIFETIME, ca_certificate.not_valid_after_utc)
    builder = (
        _builder(subject, ca_certificate.subject, key.public_key(), now, end)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in sorted(names)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_certificate.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    )
    return _pair(builder.sign(ca_key, hashes.SHA256()), key)


def read_ca(pair: KeyPair | None) -> Certificate | None:
    """What matters of a CA; None where it is missing, unreadable, not a CA's, or its key is another's."""
    certificate = _load(pair)
    if certificate is None or pair is None or not _key_fits(certificate, pair.key) or not _may_sign(certificate):
        return None
    return Certificate(certificate.not_valid_before_utc, certificate.not_valid_after_utc, _permitted(certificate))


def read_leaf(pair: KeyPair | None, ca: KeyPair | None) -> Certificate | None:
    """What matters of a serving certificate; None where it is missing or unreadable."""
    certificate, issuer = _load(pair), _load(ca)
    if certificate is None or pair is None:
        return None
    return Certificate(
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        names_of(certificate),
        issuer is not None and _is_issued_by(certificate, issuer) and _key_fits(certificate, pair.key),
    )


def names_of(certificate: x509.Certificate) -> frozenset[str]:
    """DNS names and IP addresses of a certificate, as text."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    dns = extension.value.get_values_for_type(x509.DNSName)
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return frozenset([*dns, *map(str, addresses)])


def _permitted(certificate: x509.Certificate) -> frozenset[str] | None:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    except x509.ExtensionNotFound:
        return None
    permitted = [name.value for name in extension.value.permitted_subtrees or () if isinstance(name, x509.DNSName)]
    return frozenset(permitted) or None


def bundle(certificates: Iterable[bytes], now: datetime) -> bytes:
    """The PEM of all that are still valid, each once, in the given order."""
    kept: dict[bytes, None] = {}
    for pem in certificates:
        try:
            loaded = x509.load_pem_x509_certificates(pem)
        except ValueError:
            continue
        for certificate in loaded:
            if certificate.not_valid_after_utc > now:
                kept[certificate.public_bytes(serialization.Encoding.PEM)] = None
    return b"".join(kept)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_ALLOWANCE)
        .not_valid_after(end)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")  # noqa: TRY004
    return key


def _load(pair: KeyPair | None) -> x509.Certificate | None:
    if pair is None:
        return None
    try:
        return x509.load_pem_x509_certificate(pair.certificate)
    except ValueError:
        return None


def _key_fits(certificate: x509.Certificate, key: bytes) -> bool:
    try:
        return _private_key(key).public_key() == certificate.public_key()
    except (ValueError, TypeError):
        return False


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
