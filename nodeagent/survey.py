"""One survey of the node: everything seen at one moment, and the sums and choices that follow from it.

Made by the measure loop for the offer and NodeSlack, and anew for each step of an eviction round, so that no victim is
ever chosen from an old reading.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from nodeagent.decide.evict import Rounds, with_evicted
from nodeagent.metrics import Metrics
from nodeagent.observe import ApiObserver, PolicyState, read_memory
from nodeagent.settings import Settings
from slackwater.adapters.cgroups import CgroupTree
from slackwater.errors import Unavailable
from slackwater.headroom import Headroom, compute
from slackwater.node import NodeView
from slackwater.pod import PodView
from slackwater.policy.colocation import NodePolicy
from slackwater.reading import MemoryReading
from slackwater.victims import EvictionPlan, choose


@dataclass(frozen=True, slots=True)
class Survey:
    """Values of one moment; ``at_s`` in monotonic seconds."""

    node: NodeView
    pods: tuple[PodView, ...]
    policy: NodePolicy
    policy_state: PolicyState
    reading: MemoryReading
    headroom: Headroom
    plan: EvictionPlan
    at_s: float


class Surveyor:
    """Makes surveys; any thread may ask."""

    def __init__(self, settings: Settings, api: ApiObserver, tree: CgroupTree, metrics: Metrics) -> None:
        self._settings = settings
        self._api = api
        self._tree = tree
        self._metrics = metrics

    def survey(self, rounds: Rounds) -> Survey:
        """Read and sum up everything once; blocks.

        Raises:
            Unavailable: there is nothing to decide on: no API server yet, no Node, unreadable memory.
        """
        if not self._api.synced:
            raise Unavailable("the API server has not been read yet")
        node = self._api.node()
        if node is None:
            raise Unavailable(f"the API server has no usable Node {self._settings.node_name}")
        pods = with_evicted(self._api.pods(), rounds)
        state = self._api.policy()
        policy = state.policy.for_node(node)
        now, at_s = datetime.now(UTC), time.monotonic()
        reading = read_memory(self._tree, node.name, pods, now, self._metrics)
        headroom = compute(node, pods, reading, policy, self._settings.block_size)
        plan = choose(node, pods, reading, policy, self._settings.block_size, now, headroom=headroom)
        return Survey(node, pods, policy, state, reading, headroom, plan, at_s)
