"""The certificates in the cluster: two Secrets, written only when ``certs.decide`` says so.

``slackwater-ca`` holds the CA with its key (``tls.crt``, ``tls.key``), from two thirds of its life on its successor
(``next.crt``, ``next.key``), and older CAs without keys (``previous.crt``); it is mounted nowhere, and no key in it
goes anywhere else. ``slackwater-tls`` holds the serving certificate, its key and the bundle (``ca.crt``) that clients
verify it with; the webhook and the extender mount it. Two leaders at once are harmless: a Secret is created or replaced
with its resourceVersion, and the loser reads what the winner wrote.
"""

import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, assert_never

from certs import issue
from certs.decide import Action, Decision, Found, decide
from certs.issue import KeyPair
from slackwater.adapters.kube import Conflict, KubeClient, NotFound
from slackwater.adapters.logs import kv
from slackwater.objects import string_map

_LOG = logging.getLogger("slackwater.certs")
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Names:
    """Where the certificates live, and whom they serve (DNS names and IP addresses)."""

    namespace: str
    ca_secret: str
    tls_secret: str
    served: frozenset[str]
    domains: frozenset[str]
    """DNS names at or below which the CA may sign at all; they cover ``served``."""


def service_names(service: str, namespace: str) -> frozenset[str]:
    """Every DNS name under which a Service may be called."""
    full = f"{service}.{namespace}.svc"
    return frozenset({service, f"{service}.{namespace}", full, f"{full}.cluster.local"})


def ensure(client: KubeClient, names: Names, now: datetime) -> bytes:
    """Make sure that valid certificates are in place; the CA bundle (PEM) that clients must trust.

    Raises:
        ApiError: the API server refused or was away; what was written so far is complete in itself.
    """
    for _ in range(_TRIES):
        try:
            return _ensure_once(client, names, now)
        except Conflict:
            _LOG.info("somebody else wrote the certificates, reading them again", extra=kv(secret=names.tls_secret))
    return _ensure_once(client, names, now)


def _ensure_once(client: KubeClient, names: Names, now: datetime) -> bytes:
    ca_secret = _read(client, names.namespace, names.ca_secret)
    tls_secret = _read(client, names.namespace, names.tls_secret)
    ca, successor, leaf = _pair_of(ca_secret, "tls"), _pair_of(ca_secret, "next"), _pair_of(tls_secret, "tls")
    found = Found(issue.read_ca(ca), issue.read_leaf(leaf, ca), issue.read_ca(successor))
    decision = decide(found, names.served, now)

    authority = _next_authority(decision, _Authority(ca, successor, _value(ca_secret, "previous.crt")), names, now)
    if found.ca is None:
        # Our own Secret is lost: whoever still serves a certificate of the lost CA must stay trusted meanwhile.
        authority = replace(authority, previous=authority.previous + _value(tls_secret, "ca.crt"))
    bundle = issue.bundle(authority.certificates(), now)
    if decision.action in (Action.KEEP, Action.PREPARE) and leaf is not None:
        new_leaf = leaf
    else:
        new_leaf = issue.new_leaf(authority.signer(), names.served, now)

    # The CA first: a leaf without its CA's key could never be renewed.
    wrote_ca = _write(client, names.namespace, names.ca_secret, ca_secret, authority.as_data(now))
    serving = {"tls.crt": new_leaf.certificate, "tls.key": new_leaf.key, "ca.crt": bundle}
    wrote_tls = _write(client, names.namespace, names.tls_secret, tls_secret, serving)
    if wrote_ca or wrote_tls:
        _LOG.info("certificates written", extra=kv(action=decision.action, reason=decision.reason))
    return bundle


@dataclass(frozen=True, slots=True)
class _Authority:
    """What ``slackwater-ca`` holds. ``previous`` is the PEM of older CAs, without keys."""

    ca: KeyPair | None
    successor: KeyPair | None
    previous: bytes

    def signer(self) -> KeyPair:
        if self.ca is None:
            raise ValueError("there is no CA to sign with")
        return self.ca

    def certificates(self) -> list[bytes]:
        """All that clients must trust, the signing one first."""
        return [*(pair.certificate for pair in (self.ca, self.successor) if pair is not None), self.previous]

    def as_data(self, now: datetime) -> dict[str, bytes]:
        data = {"tls.crt": self.signer().certificate, "tls.key": self.signer().key}
        if self.successor is not None:
            data |= {"next.crt": self.successor.certificate, "next.key": self.successor.key}
        previous = issue.bundle([self.previous], now)
        return data | ({"previous.crt": previous} if previous else {})


def _next_authority(decision: Decision, held: _Authority, names: Names, now: datetime) -> _Authority:
    """The CAs after ``decision``."""
    retired = held.previous + (b"" if held.ca is None else held.ca.certificate)
    match decision.action:
        case Action.PREPARE:
            return replace(held, successor=issue.new_ca(names.domains, now))
        case Action.PROMOTE:
            return _Authority(held.successor, None, retired)
        case Action.REPLACE:
            return _Authority(issue.new_ca(names.domains, now), None, retired)
        case Action.KEEP | Action.RENEW:
            return held
        case _:
            assert_never(decision.action)


def _read(client: KubeClient, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    except NotFound:
        return None


def _value(secret: Mapping[str, Any] | None, key: str) -> bytes:
    try:
        return base64.b64decode(string_map(secret or {}, "data").get(key, ""), validate=True)
    except binascii.Error:
        return b""


def _pair_of(secret: Mapping[str, Any] | None, name: str) -> KeyPair | None:
    certificate, key = _value(secret, f"{name}.crt"), _value(secret, f"{name}.key")
    return KeyPair(certificate, key) if certificate and key else None


def _write(
    client: KubeClient, namespace: str, name: str, old: Mapping[str, Any] | None, data: Mapping[str, bytes]
) -> bool:
    """Create or replace a Secret; False where it holds ``data`` already."""
    encoded = {key: base64.b64encode(value).decode("ascii") for key, value in data.items()}
    path = f"/api/v1/namespaces/{namespace}/secrets"
    if old is None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "slackwater"}},
            "data": encoded,
        }
        client.create(path, secret)
    elif old.get("data") == encoded:
        return False
    else:
        client.replace(f"{path}/{name}", {**old, "data": encoded})
    return True
