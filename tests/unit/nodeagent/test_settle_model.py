"""Every interleaving of what can happen to the blocks of a node, against a model of the kubelet.

The model knows who really holds what. Whatever order allocations, ends, lists (also late and empty ones), offers and
crashes of the agent come in, no block that is in use is ever given free, and no id leaves the list.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nodeagent.decide.settle import CONFIRM_WITHIN_S, Evidence, settle
from nodeagent.wire import CheckpointEntry, ContainerDevices
from slackwater.ledger import Ledger, block_ids, check_invariants
from slackwater.names import MIB, RESOURCE
from slackwater.pod import PodView

BLOCK = 512 * MIB
IDS = block_ids({0: 3 * BLOCK, 1: 2 * BLOCK}, BLOCK)
POD_NAMES = st.sampled_from(("a", "b", "c"))


class Kubelet(RuleBasedStateMachine):
    """The truth, and an agent that learns of it through its witnesses."""

    ledger: Ledger
    listed: set[str]

    @initialize()
    def boot(self) -> None:
        self.now_s = 0.0
        self.truth: dict[str, str] = {}
        """block → uid of the pod that really holds it."""
        self.checkpoint: dict[str, str] = {}
        """The same in the kubelet's file, where entries of ended pods linger."""
        self.living: set[str] = set()
        self.pods = 0
        self.late: Evidence | None = None
        self.start_agent()

    # -- the kubelet ----------------------------------------------------------------------------------------------

    @rule(name=POD_NAMES, count=st.integers(1, 3))
    def allocate(self, name: str, count: int) -> None:
        """A pod of this name is admitted; an earlier one of that name has gone before."""
        self.end(name)
        free = [block.id for block in self.ledger.blocks.values() if block.healthy and block.id not in self.truth]
        chosen = free[:count]
        self.pods += 1
        uid = f"{name}/{self.pods}"
        self.living.add(uid)
        self.ledger = self.ledger.assign(chosen, self.now_s)
        for block in chosen:
            self.truth[block] = self.checkpoint[block] = uid

    @rule(name=POD_NAMES)
    def end(self, name: str) -> None:
        self.living = {uid for uid in self.living if not uid.startswith(f"{name}/")}
        self.truth = {block: uid for block, uid in self.truth.items() if uid in self.living}

    @rule()
    def the_kubelet_tidies_its_checkpoint(self) -> None:
        self.checkpoint = dict(self.truth)

    # -- the agent ------------------------------------------------------------------------------------------------

    def start_agent(self) -> None:
        self.ledger = Ledger.of(IDS).offer({0: 3, 1: 2})
        self.listed = set(self.ledger.blocks)

    def evidence(self, listing: str, *, api_server: bool) -> Evidence:
        entries = [
            ContainerDevices("default", uid.split("/")[0], "app", RESOURCE, (block,))
            for block, uid in self.truth.items()
        ]
        return Evidence(
            {"whole": entries, "empty": [], "none": None}[listing],
            self.now_s,
            [CheckpointEntry(uid, "app", (block,)) for block, uid in self.checkpoint.items()],
            [PodView(uid, "default", uid.split("/")[0]) for uid in self.living] if api_server else None,
        )

    def take(self, evidence: Evidence) -> None:
        settlement = settle(self.ledger.held(), evidence)
        assert settlement is not None
        self.ledger = self.ledger.settle(settlement.holders, settlement.gone)
        self.listed |= set(self.ledger.blocks)

    @rule(listing=st.sampled_from(("whole", "empty", "none")), api_server=st.booleans(), waited_s=st.integers(0, 40))
    def hear(self, listing: str, *, api_server: bool, waited_s: int) -> None:
        """An empty list is what a kubelet gives while it starts."""
        self.now_s += waited_s
        self.take(self.evidence(listing, api_server=api_server))
        self.late = None

    @rule(api_server=st.booleans())
    def ask(self, *, api_server: bool) -> None:
        """The answer comes later."""
        self.late = self.evidence("whole", api_server=api_server)
        self.now_s += 0.5

    @precondition(lambda self: self.late is not None)
    @rule()
    def hear_the_late_answer(self) -> None:
        assert self.late is not None
        self.take(self.late)
        self.late = None

    @rule(blocks=st.fixed_dictionaries({0: st.integers(0, 3), 1: st.integers(0, 2)}))
    def offer(self, blocks: dict[int, int]) -> None:
        self.ledger = self.ledger.offer(blocks)

    @rule(listing=st.sampled_from(("whole", "empty", "none")))
    def crash(self, listing: str) -> None:
        """A new agent knows nothing until it has heard the witnesses; before that it shows no block to the kubelet."""
        self.start_agent()
        self.take(self.evidence(listing, api_server=True))
        self.late = None

    @rule()
    def settle_in_the_end(self) -> None:
        """After a quiet while the ledger and the kubelet agree exactly, holders too."""
        self.now_s += CONFIRM_WITHIN_S + 1
        self.take(self.evidence("whole", api_server=True))
        self.late = None
        held = {name: block.holder.pod_uid for name, block in self.ledger.held().items() if block.holder}
        assert held == self.truth

    # -- what must always hold ------------------------------------------------------------------------------------

    @invariant()
    def what_is_in_use_is_known_as_held(self) -> None:
        assert set(self.truth) <= set(self.ledger.held())

    @invariant()
    def nothing_is_broken(self) -> None:
        assert check_invariants(self.ledger, self.listed) == ()


TestLedgerAgainstAKubelet = Kubelet.TestCase
TestLedgerAgainstAKubelet.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
