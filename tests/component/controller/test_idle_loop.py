"""How the idle loop keeps going: reloads, timers, restarts, kinds that cannot be read, clocks, quiet.

What it does to objects is in ``test_idle.py``, what is idle in the unit tests of ``controller.decide``.
"""

import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest
from component.controller.conftest import NOTEBOOKS, Cluster
from component.https_process import eventually

from controller import metrics
from controller.kinds import KINDS
from controller.loop import IdleController

FRESH = timedelta(0)


def test_reload_says_per_type_what_changed_or_that_nothing_did(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = cluster.notebook("old")
    cluster.set_policy("policy: {notebook: {idleTimeout: 86400}, explorer: {}}")
    cluster.start_controller()
    assert eventually(lambda: "policy of this type" in caplog.text)
    caplog.clear()
    cluster.set_policy("policy: {notebook: {idleTimeout: 3600}, explorer: {}}")
    assert eventually(lambda: cluster.is_suspended(path), 2)
    said = [(record.getMessage(), record.__dict__["slackwater_fields"]) for record in caplog.records]
    changes = {fields["type"]: (message, fields) for message, fields in said if "policy of this type" in message}
    assert changes["notebook"] == (
        "policy of this type changed",
        {
            "type": "notebook",
            "before": "scanInterval 300 s, idleTimeout 86400 s, all namespaces",
            "now": "scanInterval 300 s, idleTimeout 3600 s, all namespaces",
        },
    )
    assert changes["explorer"][0] == "policy of this type is unchanged, nothing to do"
    assert changes["tensorboard"] == (
        "policy of this type is unchanged, nothing to do", {"type": "tensorboard", "policy": "off"},
    )  # fmt: skip


def test_reload_leaves_the_timers_of_unchanged_types_alone(cluster: Cluster) -> None:
    cluster.set_policy("policy: {notebook: {scanInterval: 3600}, explorer: {idleTimeout: 1000}}")
    controller = cluster.start_controller()
    assert eventually(lambda: "notebook" in controller._due_at_s)
    path = cluster.notebook("old", idle_for=timedelta(days=2))
    cluster.set_policy("policy: {notebook: {scanInterval: 3600}, explorer: {idleTimeout: 2000}}")
    assert cluster.stays(lambda: not cluster.is_suspended(path), 1)
    cluster.set_policy("policy: {notebook: {scanInterval: 3600, idleTimeout: 3600}}")
    assert eventually(lambda: cluster.is_suspended(path), 2)


def test_restart_neither_resets_nor_skips_a_resume(cluster: Cluster) -> None:
    path = cluster.notebook("old")
    cluster.server.edit(path, {"metadata": {"annotations": {"slackwater.io/suspended-at": "2026-01-01T00:00:00Z"}}})
    cluster.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    cluster.start_controller()
    assert eventually(lambda: cluster.annotation(path, "resumed-at") is not None, 3)
    before = cluster.server.get(path)
    cluster.stop.set()
    cluster.server.close_watches()
    cluster.stop = threading.Event()
    cluster.start_controller()
    assert cluster.stays(lambda: cluster.server.get(path) == before, 1.5)


def test_kind_that_may_not_be_read_does_not_stop_the_others(cluster: Cluster) -> None:
    cluster.server.fail_next("GET", "/explorers", 403, times=1000)
    cluster.set_policy("policy: {explorer: {idleTimeout: 60}, notebook: {idleTimeout: 60}}")
    path = cluster.notebook("old")
    controller = cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(path), 3)
    assert controller.problems() == []
    assert metrics.KIND_READABLE.labels("Explorer")._value.get() == 0


def test_objects_without_shape_do_not_stop_the_others(cluster: Cluster) -> None:
    cluster.server.put(NOTEBOOKS, {"metadata": {"name": "a", "namespace": "shop"}, "spec": None, "status": 5})
    cluster.set_policy("policy: {notebook: {idleTimeout: 60}}")
    path = cluster.notebook("old")
    cluster.start_controller()
    assert eventually(lambda: cluster.is_suspended(path), 3)


def test_nothing_is_written_and_nothing_listed_again_while_nothing_is_due(cluster: Cluster) -> None:
    for number in range(20):
        cluster.notebook(f"fresh-{number}", idle_for=FRESH)
    cluster.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    cluster.start_controller()
    assert eventually(lambda: metrics.OBJECTS.labels("Notebook", "IdleTimeoutNotReached")._value.get() == 20)
    assert cluster.stays(lambda: all(call.method == "GET" for call in cluster.server.requests), 2)
    assert len(cluster.server.calls("GET", "/notebooks")) == 1


def test_policy_that_was_broken_before_somebody_led_is_reported_by_the_leader(cluster: Cluster) -> None:
    leading = threading.Event()
    path = cluster.notebook("old")
    cluster.set_policy("policy: {notebook: {idleTimeout: soon}, tensorboard: {}}")
    cluster.start_controller(leading.is_set)
    assert cluster.stays(lambda: not cluster.events("IdlePolicyInvalid"), 1)
    leading.set()
    assert eventually(lambda: bool(cluster.events("IdlePolicyInvalid")), 4)
    (event,) = cluster.events("IdlePolicyInvalid")
    assert "policy.notebook.idleTimeout: is 'soon'" in event["message"]
    assert "stays switched off" in event["message"]
    assert metrics.POLICY_VALID.labels("notebook")._value.get() == 0
    assert not cluster.is_suspended(path)


def test_clock_that_leaps_ahead_suspends_nothing(cluster: Cluster) -> None:
    now = datetime.now(UTC)
    path = cluster.notebook("fresh", idle_for=FRESH)
    cluster.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    # Turned by hand, so that days pass between two turns.
    controller = IdleController(
        cluster.client(), "slackwater-system", "resource-keeper-policy-config", lambda: True
    )  # fmt: skip
    copies = [controller._config_maps, *(controller._objects[kind.policy_type] for kind in KINDS)]
    for copy in copies:
        copy.start(cluster.stop)
    assert all(copy.synced.wait(5) for copy in copies)
    controller.turn(now, 1000)
    controller.turn(now + timedelta(days=2), 1002)
    controller.turn(now + timedelta(days=2, seconds=2), 1004)
    assert not cluster.is_suspended(path)
    assert metrics.CLOCK_AHEAD_SECONDS._value.get() > 86400
    controller.turn(now + timedelta(seconds=3605), 1000 + 3605)
    assert cluster.is_suspended(path)
    assert metrics.CLOCK_AHEAD_SECONDS._value.get() == 0
