"""When certificates are kept, renewed and replaced."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.decide import Action, Certificate, Found, decide

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CA = Certificate(NOW - 100 * DAY, NOW + 3550 * DAY)
SUCCESSOR = Certificate(NOW - 10 * DAY, NOW + 3640 * DAY)
WANTED = frozenset({"slackwater-webhook.slackwater-system.svc", "127.0.0.1"})


def leaf(
    begun: timedelta = 100 * DAY, left: timedelta = 265 * DAY, names: frozenset[str] = WANTED, *, signed: bool = True
) -> Certificate:
    return Certificate(NOW - begun, NOW + left, names, signed)


def ca(begun: timedelta, left: timedelta, *below: str) -> Certificate:
    return Certificate(NOW - begun, NOW + left, frozenset(below) or None)


@pytest.mark.parametrize(
    ("found", "action", "reason"),
    [
        pytest.param(Found(CA, leaf()), Action.KEEP, "valid until 2027-02-21", id="all is well"),
        pytest.param(Found(CA, leaf(names=WANTED | {"more"})), Action.KEEP, "valid until", id="more names than wanted"),
        pytest.param(Found(None, leaf()), Action.REPLACE, "no usable CA", id="no CA"),
        pytest.param(Found(None, None), Action.REPLACE, "no usable CA", id="nothing"),
        pytest.param(Found(ca(9 * DAY, -DAY), leaf()), Action.REPLACE, "2026-05-31", id="CA expired"),
        pytest.param(Found(ca(-DAY, 99 * DAY), leaf()), Action.REPLACE, "2026-06-02", id="CA of the future"),
        pytest.param(Found(ca(DAY, 9 * DAY, "other.svc"), leaf()), Action.REPLACE, "may not sign", id="CA of others"),
        pytest.param(Found(ca(DAY, 9 * DAY, "slackwater-system.svc"), leaf()), Action.KEEP, "valid", id="CA for these"),
        pytest.param(
            Found(ca(DAY, 9 * DAY, "system.svc"), leaf()), Action.REPLACE, "may not sign", id="ends alike, is another"
        ),
        pytest.param(Found(ca(2 * DAY, DAY), leaf()), Action.PREPARE, "needs a successor", id="CA at two thirds"),
        pytest.param(Found(ca(199 * DAY, 101 * DAY), leaf()), Action.KEEP, "valid", id="CA just before two thirds"),
        pytest.param(Found(ca(2 * DAY, DAY), leaf(), SUCCESSOR), Action.KEEP, "valid", id="CA with a successor"),
        pytest.param(
            Found(ca(2 * DAY, DAY), leaf(), ca(9 * DAY, -DAY)), Action.PREPARE, "needs", id="successor expired"
        ),
        pytest.param(
            Found(ca(2 * DAY, DAY), leaf(), ca(DAY, DAY, "other.svc")), Action.PREPARE, "needs", id="successor unfit"
        ),
        pytest.param(
            Found(ca(50 * DAY, 10 * DAY), leaf(), SUCCESSOR), Action.PROMOTE, "takes over", id="CA at five sixths"
        ),
        pytest.param(Found(ca(50 * DAY, 10 * DAY), None), Action.PREPARE, "needs", id="nobody to promote yet"),
        pytest.param(Found(CA, None), Action.RENEW, "no usable serving certificate", id="no leaf"),
        pytest.param(Found(CA, leaf(signed=False)), Action.RENEW, "not from this CA", id="another CA's leaf"),
        pytest.param(Found(CA, leaf(names=frozenset({"127.0.0.1"}))), Action.RENEW, "lacks slackwater-", id="name"),
        pytest.param(Found(CA, leaf(200 * DAY, 100 * DAY)), Action.RENEW, "until 2026-09-09", id="leaf at two thirds"),
        pytest.param(Found(CA, leaf(199 * DAY, 101 * DAY)), Action.KEEP, "valid", id="leaf just before two thirds"),
        pytest.param(Found(CA, leaf(400 * DAY, -DAY)), Action.RENEW, "until 2026-05-31", id="leaf expired"),
        pytest.param(Found(CA, leaf(-DAY, 300 * DAY)), Action.RENEW, "valid until", id="leaf of the future"),
    ],
)
def test_decide(found: Found, action: Action, reason: str) -> None:
    decision = decide(found, WANTED, NOW)
    assert (decision.action, reason in decision.reason) == (action, True)


@pytest.mark.parametrize(
    ("name", "permitted"),
    [
        ("a.svc", True), ("b.a.svc", True), ("xa.svc", False), ("svc", False), ("localhost", False),
        ("10.0.0.1", True), ("fd00::7", True), ("a.svc.", False),
    ],
)  # fmt: skip
def test_a_ca_signs_at_or_below_its_domains_and_for_any_address(name: str, permitted: bool) -> None:
    assert ca(DAY, DAY, "a.svc").may_sign([name]) is permitted
    assert ca(DAY, DAY).may_sign([name])


_MOMENTS = st.integers(-2000, 2000).map(lambda days: NOW + days * DAY)
_NAMES = st.frozensets(st.sampled_from(["a", "b.a", "c", "10.0.0.1"]))
_CAS = st.none() | st.builds(Certificate, _MOMENTS, _MOMENTS, st.none() | _NAMES)
_LEAVES = st.none() | st.builds(Certificate, _MOMENTS, _MOMENTS, _NAMES, st.booleans())


@given(found=st.builds(Found, _CAS, _LEAVES, _CAS), wanted=_NAMES)
def test_only_what_serves_every_name_in_its_time_is_kept(found: Found, wanted: frozenset[str]) -> None:
    action = decide(found, wanted, NOW).action
    if action in (Action.KEEP, Action.RENEW, Action.PREPARE, Action.PROMOTE):
        assert found.ca is not None
        assert found.ca.may_sign(wanted)
        assert found.ca.not_before <= NOW < found.ca.not_after
    if action is Action.PROMOTE:
        assert found.successor is not None
        assert found.successor.may_sign(wanted)
        assert found.successor.not_before <= NOW < found.successor.not_after
    if action is Action.KEEP:
        assert found.leaf is not None
        assert wanted <= (found.leaf.names or frozenset())
        assert found.leaf.signed_by_ca
        assert found.leaf.not_before <= NOW < found.leaf.not_after
