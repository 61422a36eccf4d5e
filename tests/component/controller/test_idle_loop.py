"""The idle loop against an API server over HTTP: policy edits, resumes, conflicts, failures, leaders.

Not here: what is idle (``tests/unit/controller/test_decide.py``), the election itself, certificates and webhook rules.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from component.apiserver import ApiServer
from component.https_process import eventually
from unit.controller.workloads import namespace, workload

from controller import metrics
from controller.kinds import KINDS
from controller.loop import IdleController
from slackwater.adapters.kube import KubeClient
from slackwater.timestamps import format_time, parse_time

NOTEBOOKS, TENSORBOARDS, EXPLORERS = (kind.collection_path for kind in KINDS)
CONFIG_MAPS, NAMESPACES, EVENTS = "/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/events"
POLICY = "/api/v1/namespaces/system/configmaps/policy"
ONE = "/apis/tensorstack.dev/v1beta1/namespaces/lab/notebooks/one"
SETTLED_S = 1.0
"""Long enough for a turn after everything that woke the loop."""


@dataclass
class Rig:
    """A controller on a server; ``leads`` makes it the leader."""

    server: ApiServer
    client: KubeClient
    leads: bool = True
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> IdleController:
        controller = IdleController(self.client, "system", "policy", lambda: self.leads)
        controller.start(self.stop)
        assert eventually(lambda: not controller.problems(), 5)
        return controller

    def set_policy(self, text: str) -> None:
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy", "namespace": "system"}}
        self.server.put(CONFIG_MAPS, {**config_map, "data": {"policy.yaml": text}})

    def put(self, collection: str = NOTEBOOKS, name: str = "one", **more: Any) -> None:
        more.setdefault("idle_since", datetime.now(UTC) - timedelta(hours=2))
        kind = next(kind.kind for kind in KINDS if kind.collection_path == collection)
        raw = workload(name, kind=kind, **more)
        del raw["metadata"]["resourceVersion"]
        self.server.put(collection, raw)

    def is_suspended(self, name: str = "one", collection: str = NOTEBOOKS) -> bool:
        path = f"{collection.rsplit('/', 1)[0]}/namespaces/lab/{collection.rsplit('/', 1)[1]}/{name}"
        raw = self.server.get(path)
        return raw is not None and raw["spec"]["suspend"] is True

    def annotations(self) -> dict[str, str]:
        raw = self.server.get(ONE)
        assert raw is not None
        found: dict[str, str] = raw["metadata"].get("annotations", {})
        return found

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.server.all(EVENTS) if event["reason"] == reason]

    def patches(self) -> int:
        return len(self.server.calls("PATCH", "/tensorstack.dev/"))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with ApiServer() as server:
        server.put(NAMESPACES, namespace("lab", tier="gold"))
        rig = Rig(server, KubeClient.connect(server.kubeconfig(tmp_path / "kubeconfig")))
        yield rig
        rig.stop.set()


def settle() -> None:
    threading.Event().wait(SETTLED_S)


def test_idle_object_is_suspended_with_one_patch_and_an_event(rig: Rig) -> None:
    rig.put()
    rig.put(name="fresh", idle_since=datetime.now(UTC))
    rig.put(TENSORBOARDS, "board")
    rig.set_policy("policy: {notebook: {idleTimeout: 3600}}")
    rig.start()
    assert eventually(lambda: bool(rig.events("Suspended")))
    assert rig.is_suspended()
    (event,) = rig.events("Suspended")
    assert event["type"] == "Normal"
    assert event["involvedObject"]["name"] == "one"
    assert "longer than idleTimeout 3600 s" in event["message"]
    assert set(rig.annotations()) == {"slackwater.io/suspended-at", "slackwater.io/suspended-by"}
    settle()
    assert not rig.is_suspended("fresh")
    assert not rig.is_suspended("board", TENSORBOARDS)
    assert rig.patches() == 1


def test_policy_edit_takes_effect_at_once_and_says_what_changed(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig.put()
    rig.set_policy("policy: {notebook: {idleTimeout: 86400}, explorer: {}}")
    rig.start()
    settle()
    assert not rig.is_suspended()
    caplog.clear()
    rig.set_policy("policy: {notebook: {idleTimeout: 3600}, explorer: {}}")
    assert eventually(rig.is_suspended, 2)
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
    assert "nothing to do" in changes["explorer"][0]
    assert "nothing to do" in changes["tensorboard"][0]


def test_policy_edit_leaves_the_timers_of_other_types_alone(rig: Rig) -> None:
    rig.set_policy("policy: {notebook: {scanInterval: 3600}, explorer: {scanInterval: 1, idleTimeout: 1}}")
    rig.start()
    settle()
    rig.put()
    settle()
    rig.set_policy("policy: {notebook: {scanInterval: 3600}, explorer: {scanInterval: 1, idleTimeout: 2}}")
    settle()
    assert not rig.is_suspended()
    rig.set_policy("policy: {notebook: {scanInterval: 3600, idleTimeout: 60}}")
    assert eventually(rig.is_suspended, 2)


def test_object_that_becomes_due_is_suspended_by_a_later_scan(rig: Rig) -> None:
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    settle()
    rig.put()
    assert eventually(rig.is_suspended, 4)


def test_namespaces_are_chosen_by_label(rig: Rig) -> None:
    rig.put()
    rig.put(name="elsewhere", namespace="unknown")
    rig.set_policy("policy: {notebook: {idleTimeout: 60, namespaceSelector: {matchLabels: {tier: tin}}}}")
    rig.start()
    settle()
    assert rig.patches() == 0
    rig.set_policy("policy: {notebook: {idleTimeout: 60, namespaceSelector: {matchLabels: {tier: gold}}}}")
    assert eventually(rig.is_suspended, 2)
    assert rig.patches() == 1


def test_resume_by_hand_gives_the_full_time_again(rig: Rig) -> None:
    rig.put()
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3}}")
    rig.start()
    assert eventually(rig.is_suspended)
    rig.server.edit(ONE, {"spec": {"suspend": False}})
    assert eventually(lambda: set(rig.annotations()) == {"slackwater.io/resumed-at"}, 2)
    resumed_at = parse_time(rig.annotations()["slackwater.io/resumed-at"])
    assert eventually(rig.is_suspended, 10)
    suspended_at = parse_time(rig.annotations()["slackwater.io/suspended-at"])
    assert suspended_at - resumed_at > timedelta(seconds=3)


def test_resume_of_what_a_person_had_paused_gives_the_full_time_too(rig: Rig) -> None:
    rig.put(suspend=True)
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    settle()
    assert rig.patches() == 0
    rig.server.edit(ONE, {"spec": {"suspend": False}})
    assert eventually(lambda: "slackwater.io/resumed-at" in rig.annotations(), 2)
    settle()
    assert not rig.is_suspended()


def test_restart_neither_resets_nor_skips_a_resume(rig: Rig) -> None:
    suspended = {"slackwater.io/suspended-at": format_time(datetime.now(UTC) - timedelta(hours=1), micros=True)}
    rig.put(annotations=suspended)
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    assert eventually(lambda: "slackwater.io/resumed-at" in rig.annotations(), 3)
    before = rig.annotations()
    rig.stop.set()
    rig.stop = threading.Event()
    rig.start()
    settle()
    assert rig.annotations() == before
    assert rig.patches() == 1


def test_resume_recorded_by_another_leader_is_not_recorded_again(rig: Rig) -> None:
    rig.put(suspend=True)
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.leads = False
    rig.start()
    assert eventually(lambda: bool(rig.server.calls("GET", "/notebooks")), 3)
    settle()
    rig.server.edit(ONE, {"spec": {"suspend": False}})
    recorded = format_time(datetime.now(UTC), micros=True)
    rig.server.edit(ONE, {"metadata": {"annotations": {"slackwater.io/resumed-at": recorded}}})
    settle()
    rig.leads = True
    settle()
    settle()
    assert rig.annotations() == {"slackwater.io/resumed-at": recorded}
    assert rig.patches() == 0


def test_standby_only_watches_and_acts_once_it_leads(rig: Rig) -> None:
    rig.put()
    rig.set_policy("policy: {notebook: {idleTimeout: 3600}}")
    rig.leads = False
    rig.start()
    settle()
    assert rig.patches() == 0
    rig.leads = True
    assert eventually(rig.is_suspended, 4)


def test_object_that_changed_meanwhile_is_decided_on_again(rig: Rig) -> None:
    rig.put()

    def becomes_active() -> None:
        rig.server.edit(ONE, {"status": {"conditions": [{"type": "Idle", "status": "False"}]}})

    rig.server.before_next("PATCH", "/notebooks/one", becomes_active)
    rig.set_policy("policy: {notebook: {idleTimeout: 3600}}")
    rig.start()
    assert eventually(lambda: rig.patches() == 1)
    settle()
    assert not rig.is_suspended()
    assert rig.patches() == 1


def test_conflict_over_something_else_only_delays(rig: Rig) -> None:
    rig.put()
    rig.server.before_next(
        "PATCH", "/notebooks/one", lambda: rig.server.edit(ONE, {"metadata": {"labels": {"a": "b"}}})
    )
    rig.set_policy("policy: {notebook: {idleTimeout: 3600}}")
    rig.start()
    assert eventually(rig.is_suspended, 5)
    assert rig.patches() == 2


def test_event_that_cannot_be_written_is_not_missed_by_the_suspension(rig: Rig) -> None:
    rig.put()
    rig.server.fail_next("POST", "/events", 500, times=100)
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    assert eventually(rig.is_suspended)
    settle()
    assert rig.patches() == 1


def test_refusal_of_one_object_stops_neither_the_others_nor_later_attempts(rig: Rig) -> None:
    rig.put(name="refused")
    rig.put()
    rig.server.fail_next("PATCH", "/notebooks/refused", 403)
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    assert eventually(rig.is_suspended)
    assert eventually(lambda: rig.is_suspended("refused"), 4)


def test_unreadable_kind_does_not_stop_the_others(rig: Rig) -> None:
    rig.server.fail_next("GET", "/notebooks", 403, times=1000)
    rig.put(EXPLORERS, "ide")
    rig.set_policy("policy: {notebook: {idleTimeout: 60}, explorer: {idleTimeout: 60}}")
    rig.start()
    assert eventually(lambda: rig.is_suspended("ide", EXPLORERS))


def test_object_that_cannot_be_understood_does_not_stop_the_others(rig: Rig) -> None:
    rig.server.put(NOTEBOOKS, {"metadata": {"name": "broken", "namespace": "lab"}, "spec": None, "status": 5})
    rig.put()
    rig.set_policy("policy: {notebook: {idleTimeout: 3600}}")
    rig.start()
    assert eventually(rig.is_suspended)


def test_kind_that_is_installed_later_is_picked_up(rig: Rig) -> None:
    rig.server.absent.add(NOTEBOOKS)
    rig.set_policy("policy: {notebook: {idleTimeout: 3600}}")
    rig.start()
    settle()
    rig.server.absent.clear()
    rig.put()
    assert eventually(rig.is_suspended, 10)


@pytest.mark.parametrize(
    "garbage",
    ["policy: [this is\n not: a policy", "", "policy: {notebook: {idleTimeout: soon}}"],
    ids=["no YAML", "empty", "broken type"],
)
def test_garbage_keeps_the_last_good_policy_and_is_reported_once(rig: Rig, garbage: str) -> None:
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    settle()
    rig.set_policy(garbage)
    assert eventually(lambda: bool(rig.events("IdlePolicyInvalid")), 4)
    part = "notebook" if "soon" in garbage else "text"
    assert metrics.POLICY_VALID.labels(part)._value.get() == 0
    rig.put()
    assert eventually(rig.is_suspended, 4)
    (event,) = rig.events("IdlePolicyInvalid")
    assert event["type"] == "Warning"
    assert "last good policy" in event["message"]


def test_garbage_at_the_start_suspends_nothing_and_is_reported_by_the_leader(rig: Rig) -> None:
    rig.put()
    rig.set_policy("policy: {notebook: {idleTimeout: soon}, tensorboard: {}}")
    rig.leads = False
    rig.start()
    settle()
    assert not rig.events("IdlePolicyInvalid")
    rig.leads = True
    assert eventually(lambda: bool(rig.events("IdlePolicyInvalid")), 4)
    assert "policy.notebook.idleTimeout" in rig.events("IdlePolicyInvalid")[0]["message"]
    assert rig.patches() == 0


@pytest.mark.parametrize("removal", ["config map", "key", "type"])
def test_what_is_removed_is_switched_off(rig: Rig, removal: str) -> None:
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    settle()
    match removal:
        case "config map":
            rig.server.remove(POLICY)
        case "key":
            rig.server.edit(POLICY, {"data": {"policy.yaml": None, "other": "x"}})
        case _:
            rig.set_policy("policy: {explorer: {}}")
    settle()
    rig.put()
    settle()
    assert not rig.is_suspended()


def test_nothing_is_written_while_nothing_is_due(rig: Rig) -> None:
    for number in range(20):
        rig.put(name=f"fresh-{number}", idle_since=datetime.now(UTC))
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    rig.start()
    settle()
    settle()
    assert rig.patches() == 0
    assert len(rig.server.calls("GET", "/notebooks")) == 1


def test_clock_that_leaps_ahead_suspends_nothing(rig: Rig) -> None:
    now = datetime.now(UTC)
    rig.put(idle_since=now)
    rig.set_policy("policy: {notebook: {scanInterval: 1, idleTimeout: 3600}}")
    controller = IdleController(rig.client, "system", "policy", lambda: True)
    threads = [reflector.start(rig.stop) for reflector in (controller._config_maps, *controller._objects.values())]
    assert threads
    assert eventually(lambda: not [name for name, one in controller._objects.items() if not one.synced.is_set()], 5)
    assert eventually(controller._config_maps.synced.is_set, 5)
    controller.turn(now, 1000.0)
    controller.turn(now + timedelta(days=2), 1002.0)
    controller.turn(now + timedelta(days=2, seconds=2), 1004.0)
    assert rig.patches() == 0
    controller.turn(now + timedelta(seconds=3601), 1004.0 + 3597.0)
    assert rig.is_suspended()
