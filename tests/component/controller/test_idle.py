"""The idle controller against an API server: what it writes, when, and what it leaves alone.

Which object is due and why is decided purely and tested there (unit tests of ``controller.decide``).
"""

import threading
from datetime import timedelta

import pytest
from component.controller.conftest import NOTEBOOKS, POLICY, Cluster
from component.https_process import eventually

from controller import loop as loop_module
from slackwater.timestamps import parse_time

HOUR = "policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}"
NEVER_SOON = "policy: {notebook: {scanInterval: 3600, idleTimeout: 864000}}"


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time only: leadership, absent types and failed scans are looked at sooner."""
    monkeypatch.setattr(loop_module, "_LONGEST_PAUSE_S", 0.1)


def test_an_idle_object_is_suspended_and_told_and_others_are_left_alone(cluster: Cluster) -> None:
    cluster.set_policy(
        "policy: {notebook: {scanInterval: 1, idleTimeout: 3600, namespaceSelector: {matchLabels: {team: a}}}}"
    )
    old, fresh = cluster.notebook("old"), cluster.notebook("fresh", idle_for=timedelta(minutes=5))
    elsewhere, unknown = cluster.notebook("old", "other"), cluster.notebook("old", "nowhere")
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(old))
    assert eventually(lambda: len(cluster.events("Suspended")) == 1)
    (event,) = cluster.events("Suspended")
    assert (event["metadata"]["namespace"], event["type"]) == ("shop", "Normal")
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Notebook", "old")
    assert event["message"].startswith("Suspended Notebook shop/old: idle for 7200 s since ")
    assert event["message"].endswith("longer than idleTimeout 3600 s")
    raw = cluster.server.get(old)
    assert raw is not None
    assert raw["spec"] == {"type": "jupyter", "suspend": True}
    assert not any(cluster.is_suspended(path) for path in (fresh, elsewhere, unknown))
    assert [call.path for call in cluster.server.calls("PATCH", "")] == [old], "nothing else is written"


def test_without_a_policy_nothing_is_suspended_and_one_that_comes_acts_at_once(cluster: Cluster) -> None:
    path = cluster.notebook("old")
    cluster.start_controller()
    assert cluster.stays(lambda: not cluster.is_suspended(path), 0.5)
    cluster.set_policy(HOUR)
    assert eventually(lambda: cluster.is_suspended(path), 2)


def test_an_edit_of_the_policy_acts_at_once(cluster: Cluster) -> None:
    """Not at the next scan: that is an hour away."""
    cluster.set_policy(NEVER_SOON)
    path = cluster.notebook("old")
    cluster.start_controller()
    assert cluster.stays(lambda: not cluster.is_suspended(path), 0.5)
    cluster.set_policy("policy: {notebook: {scanInterval: 3600, idleTimeout: 3600}}")
    assert eventually(lambda: cluster.is_suspended(path), 1)


def test_a_namespace_that_gets_its_label_is_reached(cluster: Cluster) -> None:
    cluster.set_policy(HOUR.replace("}}", ", namespaceSelector: {matchLabels: {team: b}}}}"))
    path = cluster.notebook("old", "other")
    cluster.start_controller()
    assert cluster.stays(lambda: not cluster.is_suspended(path), 0.5)
    cluster.server.edit("/api/v1/namespaces/other", {"metadata": {"labels": {"team": "b"}}})
    assert eventually(lambda: cluster.is_suspended(path), 3)


@pytest.mark.parametrize("by_hand", [False, True], ids=["suspended by us", "suspended by a person"])
def test_a_resume_by_hand_gives_the_full_time_again(cluster: Cluster, by_hand: bool) -> None:
    cluster.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 2}}")
    path = cluster.notebook("old", suspend=by_hand)
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(path))
    assert cluster.stays(lambda: cluster.is_suspended(path), 0.3), "the watch has shown it suspended"
    first = None if by_hand else cluster.server.calls("PATCH", "/old")[-1]
    cluster.server.edit(path, {"spec": {"suspend": False}})
    assert eventually(lambda: cluster.annotation(path, "resumed-at") is not None, 1)
    resumed_at = parse_time(cluster.annotation(path, "resumed-at"))
    assert eventually(lambda: cluster.is_suspended(path), 6)
    again = cluster.server.calls("PATCH", "/old")[-1]
    assert again is not first
    suspended_at = parse_time(again.body["metadata"]["annotations"]["slackwater.io/suspended-at"])
    assert (suspended_at - resumed_at).total_seconds() > 2


def test_a_resume_while_no_controller_ran_counts_too(cluster: Cluster) -> None:
    cluster.set_policy(HOUR)
    path = cluster.notebook("old")
    cluster.server.edit(path, {"metadata": {"annotations": {"slackwater.io/suspended-at": "2026-01-01T00:00:00Z"}}})
    cluster.start_controller()
    assert eventually(lambda: cluster.annotation(path, "resumed-at") is not None)
    assert cluster.stays(lambda: not cluster.is_suspended(path), 1.2)


def test_an_object_that_became_active_meanwhile_is_not_suspended(cluster: Cluster) -> None:
    cluster.set_policy(HOUR)
    path = cluster.notebook("old")

    def work_again() -> None:
        cluster.server.edit(path, {"status": {"conditions": [{"type": "Idle", "status": "False"}]}})

    cluster.server.before_next("PATCH", "/notebooks/old", work_again)
    cluster.start_controller()
    assert eventually(lambda: len(cluster.server.calls("PATCH", "/notebooks/old")) == 1)
    assert cluster.stays(lambda: not cluster.is_suspended(path), 1.2)
    assert cluster.events("Suspended") == []


def test_an_object_that_changed_otherwise_is_decided_on_again(cluster: Cluster) -> None:
    cluster.set_policy(HOUR.replace("scanInterval: 1", "scanInterval: 3600"))
    path = cluster.notebook("old")
    cluster.server.before_next(
        "PATCH", "/notebooks/old", lambda: cluster.server.edit(path, {"metadata": {"labels": {"touched": "yes"}}})
    )
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(path), 4)
    assert len(cluster.server.calls("PATCH", "/notebooks/old")) == 2


@pytest.mark.parametrize("text", ["policy: [", "policy: {notebook: {idleTimeout: 1h}}"])
def test_a_policy_that_cannot_be_used_keeps_the_last_good_one_and_says_so(cluster: Cluster, text: str) -> None:
    cluster.set_policy(HOUR)
    first = cluster.notebook("first")
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(first))
    cluster.set_policy(text)
    assert eventually(lambda: len(cluster.events("IdlePolicyInvalid")) == 1)
    (event,) = cluster.events("IdlePolicyInvalid")
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "ConfigMap")
    assert "last good policy" in event["message"]
    second = cluster.notebook("second")
    assert eventually(lambda: cluster.is_suspended(second), 3)


@pytest.mark.parametrize("how", ["deleted", "type removed"])
def test_without_its_policy_nothing_more_is_suspended(cluster: Cluster, how: str) -> None:
    cluster.set_policy(HOUR)
    first = cluster.notebook("first")
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(first))
    if how == "deleted":
        cluster.server.remove(POLICY)
    else:
        cluster.set_policy("policy: {explorer: {}}")
    assert cluster.stays(lambda: cluster.is_suspended(first), 0.3), "what is suspended stays so"
    second = cluster.notebook("second")
    assert cluster.stays(lambda: not cluster.is_suspended(second), 1.2)


def test_a_type_that_is_installed_later_is_looked_after(cluster: Cluster) -> None:
    cluster.server.absent.add(NOTEBOOKS)
    cluster.set_policy(HOUR)
    path = cluster.notebook("old")
    controller = cluster.start_controller()
    assert eventually(lambda: not controller.problems()), "it is ready without the type"
    cluster.server.absent.clear()
    assert eventually(lambda: cluster.is_suspended(path), 3)


def test_a_standby_changes_nothing_until_it_leads(cluster: Cluster) -> None:
    leading = threading.Event()
    cluster.set_policy(HOUR)
    path = cluster.notebook("old")
    cluster.start_controller(leading.is_set)
    assert cluster.stays(lambda: not cluster.is_suspended(path), 1)
    cluster.set_policy("policy: [")
    cluster.set_policy(HOUR)
    assert [call for call in cluster.server.requests if call.method != "GET"] == []
    leading.set()
    assert eventually(lambda: cluster.is_suspended(path), 2)


def test_a_new_leader_does_not_restart_the_time_of_an_object_that_was_resumed_under_the_old_one(
    cluster: Cluster,
) -> None:
    first, second = threading.Event(), threading.Event()
    first.set()
    cluster.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    path = cluster.notebook("old", suspend=True)
    cluster.start_controller(first.is_set)
    standby = cluster.start_controller(second.is_set)
    assert eventually(lambda: not standby.problems())
    assert cluster.stays(lambda: cluster.is_suspended(path), 0.5)
    cluster.server.edit(path, {"spec": {"suspend": False}})
    assert eventually(lambda: cluster.annotation(path, "resumed-at") is not None, 2)
    resumed_at = cluster.annotation(path, "resumed-at")
    first.clear()
    second.set()
    assert cluster.stays(lambda: cluster.annotation(path, "resumed-at") == resumed_at, 1.5)


def test_an_event_that_cannot_be_written_undoes_nothing(cluster: Cluster) -> None:
    cluster.set_policy(HOUR)
    first, second = cluster.notebook("first"), cluster.notebook("second")
    cluster.server.fail_next("POST", "/events", 500)
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(first) and cluster.is_suspended(second))
    assert eventually(lambda: len(cluster.events("Suspended")) == 1)
    assert cluster.stays(lambda: cluster.is_suspended(first) and cluster.is_suspended(second), 0.3)


def test_an_object_that_cannot_be_written_does_not_keep_the_others_from_their_turn(cluster: Cluster) -> None:
    cluster.set_policy(HOUR)
    first, second = cluster.notebook("first"), cluster.notebook("second")
    cluster.server.fail_next("PATCH", "/notebooks/first", 403)
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(second))
    assert eventually(lambda: cluster.is_suspended(first), 4), "the next scan tries again"


def test_an_object_with_an_impossible_time_does_not_keep_the_others_from_their_turn(cluster: Cluster) -> None:
    cluster.set_policy(HOUR)
    odd, plain = cluster.notebook("a-odd"), cluster.notebook("b-plain")
    last = {"type": "Idle", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}
    cluster.server.edit(odd, {"status": {"conditions": [last]}})
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(plain), 3)
    assert not cluster.is_suspended(odd)
