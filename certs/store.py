"""The certificates in the cluster: two Secrets, written only when ``certs.decide`` says so.

``slackwater-ca`` holds the CA with its key and is mounted nowhere. ``slackwater-tls`` holds the serving certificate,
its key and the bundle (``ca.crt``) that clients verify it with; the webhook and the extender mount it. Two leaders at
once are harmless: a Secret is created or replaced with its resourceVersion, and the loser reads what the winner wrote.
"""

import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from certs import issue
from certs.decide import Action, decide
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


def service_names(service: str, namespace: str) -> frozenset[str]:
    """Every DNS name under which a Service may be called."""
    full = f"{service}.{namespace}.svc"
    return frozenset({service, f"{service}.{namespace}", full, f"{full}.cluster.local"})


def ensure(client: KubeClient, names: Names, now: datetime) -> bytes:
    """Make sure that valid certificates are in place; the CA bundle (PEM) that clients must trust.

    Raises:
        ApiError: the API server refused or was away; nothing half-made is left behind.
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
    ca, leaf = _pair_of(ca_secret), _pair_of(tls_secret)
    known = [_value(ca_secret, "tls.crt"), _value(tls_secret, "ca.crt")]
    decision = decide(issue.read_ca(ca), issue.read_leaf(leaf, ca), names.served, now)
    wanted = issue.bundle(known, now)
    if decision.action is Action.KEEP and wanted == _value(tls_secret, "ca.crt"):
        return wanted
    if decision.action is Action.REPLACE or ca is None:
        ca = issue.new_ca(now)
        # The CA first: a leaf without its CA's key could never be renewed.
        _write(client, names.namespace, names.ca_secret, ca_secret, {"tls.crt": ca.certificate, "tls.key": ca.key})
    if decision.action is not Action.KEEP or leaf is None:
        leaf = issue.new_leaf(ca, names.served, now)
    bundle = issue.bundle([ca.certificate, *known], now)
    _write(
        client, names.namespace, names.tls_secret, tls_secret,
        {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": bundle},
    )  # fmt: skip
    _LOG.info("certificates written", extra=kv(action=decision.action, reason=decision.reason))
    return bundle


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


def _pair_of(secret: Mapping[str, Any] | None) -> KeyPair | None:
    certificate, key = _value(secret, "tls.crt"), _value(secret, "tls.key")
    return KeyPair(certificate, key) if certificate and key else None


def _write(
    client: KubeClient, namespace: str, name: str, old: Mapping[str, Any] | None, data: Mapping[str, bytes]
) -> None:
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
    else:
        client.replace(f"{path}/{name}", {**old, "data": encoded})
