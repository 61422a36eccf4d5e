"""Candidates on one lease: one leads, another follows when it is gone, and never two at once."""

import threading
import time

import pytest
from component.controller.conftest import Cluster
from component.https_process import eventually

from controller import election as election_module
from controller.election import Election

LEASE = "/apis/coordination.k8s.io/v1/namespaces/slackwater-system/leases/slackwater-controller"
DURATION_S, DEADLINE_S, RETRY_S = 1, 0.6, 0.1


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time only: the same rules at about a fifteenth of the length."""
    monkeypatch.setattr(election_module, "LEASE_DURATION_S", DURATION_S)
    monkeypatch.setattr(election_module, "RENEW_DEADLINE_S", DEADLINE_S)
    monkeypatch.setattr(election_module, "RETRY_S", RETRY_S)


class Candidate:
    """One replica's part in the election; its calls carry its name as token."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.election = Election(cluster.client(name), "slackwater-system", "slackwater-controller", name)
        self.stop = threading.Event()
        self.thread = self.election.start(self.stop)
        cluster.threads.append(self.thread)

    @property
    def leads(self) -> bool:
        return self.election.is_leading()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(5)


def never_both_for(seconds: float, first: Candidate, second: Candidate) -> bool:
    pause, end_s = threading.Event(), time.monotonic() + seconds
    while time.monotonic() < end_s:
        if first.leads and second.leads:
            return False
        pause.wait(0.005)
    return True


def holder(cluster: Cluster) -> str | None:
    lease = cluster.server.get(LEASE) or {}
    name = (lease.get("spec") or {}).get("holderIdentity")
    return name or None


def test_the_first_leads_and_goes_on_leading(cluster: Cluster) -> None:
    one = Candidate(cluster, "one")
    assert eventually(lambda: one.leads)
    two = Candidate(cluster, "two")
    assert cluster.stays(lambda: one.leads and not two.leads, 2 * DURATION_S)
    assert holder(cluster) == "one"
    one.end()
    two.end()


def test_a_leader_that_ends_gives_the_lease_back(cluster: Cluster) -> None:
    one = Candidate(cluster, "one")
    assert eventually(lambda: one.leads)
    two = Candidate(cluster, "two")
    one.end()
    assert not one.leads
    assert eventually(lambda: two.leads, 4 * RETRY_S)
    lease = cluster.server.get(LEASE)
    assert lease is not None
    assert lease["spec"]["leaseTransitions"] == 1
    two.end()
    assert holder(cluster) is None


def test_when_the_leader_is_gone_another_takes_over_but_not_before_it_has_stopped(cluster: Cluster) -> None:
    one = Candidate(cluster, "one")
    assert eventually(lambda: one.leads)
    two = Candidate(cluster, "two")
    assert cluster.stays(lambda: one.leads, 0.3)
    cluster.server.cut_off.add("one")
    assert never_both_for(DURATION_S + 4 * RETRY_S, one, two)
    assert (one.leads, two.leads, holder(cluster)) == (False, True, "two")
    cluster.server.cut_off.clear()
    assert never_both_for(0.5, one, two)
    assert (one.leads, two.leads) == (False, True), "it does not take the lease back"
    one.end()
    two.end()


def test_a_slow_answer_does_not_make_a_candidate_impatient(cluster: Cluster) -> None:
    """What a slow call shows may have been written at its very end: only from then on does the candidate wait."""
    one = Candidate(cluster, "one")
    assert eventually(lambda: one.leads)
    slow = threading.Event()

    def answer_late_after_the_leaders_last_call() -> None:
        slow.wait(0.9 * DURATION_S)
        cluster.server.cut_off.add("one")

    cluster.server.before_next("GET", "/leases/", answer_late_after_the_leaders_last_call, client="two")
    two = Candidate(cluster, "two")
    assert never_both_for(2 * DURATION_S, one, two)
    assert eventually(lambda: two.leads, 2)
    one.end()
    two.end()


def test_without_the_api_server_a_leader_stops_by_itself(cluster: Cluster) -> None:
    one = Candidate(cluster, "one")
    assert eventually(lambda: one.leads)
    cluster.server.cut_off.add("one")
    assert eventually(lambda: not one.leads, DEADLINE_S + 0.3)
    cluster.server.cut_off.clear()
    assert eventually(lambda: one.leads, 4 * RETRY_S), "nobody else took it"
    one.end()


def test_two_that_start_together_agree(cluster: Cluster) -> None:
    one, two = Candidate(cluster, "one"), Candidate(cluster, "two")
    assert never_both_for(0.5, one, two)
    assert one.leads != two.leads
    one.end()
    two.end()
