"""Who holds which block of one node: a state machine over device ids. Pure; the node agent owns the one instance.

Theory of operation. A node has a fixed list of block ids (:func:`block_ids`), the same after every restart. An id never
leaves the list while the agent lives, only its health changes: a kubelet can crash over a listed id that vanishes. The
kubelet alone decides who gets a block (``Allocate`` names ids, never a pod), so the ledger learns of it twice: at once
from ``Allocate`` (:meth:`Ledger.assign`), and with the pod's name from the kubelet's list (:meth:`Ledger.settle`). It
never guesses a holder, and gives a block free only on evidence that the pod is gone.

====================  ==========  ===========================  ==========================================
state                 healthy     offer(more) / offer(fewer)   assign, settle(held) / settle(gone)
====================  ==========  ===========================  ==========================================
``withdrawn``         no          ``offered`` / –              ``held`` / –
``offered``           yes         – / ``withdrawn``            ``held`` / –
``held``              yes         –                            – / ``offered``
``retired``           no          –                            – (its holder is noted and forgotten)
====================  ==========  ===========================  ==========================================

``retired`` ids are not of this list (another block size, a smaller machine) but a pod held them once: they stay listed,
unhealthy, for the life of the agent. A block in use stays healthy: an unhealthy one makes the kubelet refuse its pod
after a restart of the kubelet, so shrinking takes free ids only.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

MAX_BLOCKS: Final = 4096
"""Ids of one node: 2 TiB in blocks of 512 MiB. Beyond, one update and the kubelet's own work grow to seconds."""
_PREFIX: Final = "cm"


class State(StrEnum):
    """Of one block; see the table above."""

    WITHDRAWN = "withdrawn"
    OFFERED = "offered"
    HELD = "held"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a block. ``pod_uid`` is None while only the name is known."""

    namespace: str
    pod: str
    container: str
    pod_uid: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One block. ``assigned_at_s`` (monotonic seconds) is set from ``Allocate`` until the kubelet's list shows it."""

    id: str
    numa: int
    state: State = State.WITHDRAWN
    holder: Holder | None = None
    assigned_at_s: float | None = None

    @property
    def healthy(self) -> bool:
        return self.state in (State.OFFERED, State.HELD)


def block_ids(capacities: Mapping[int, int], block_size: int) -> dict[str, int]:
    """Every id of a node with its NUMA node: ``⌈capacity / block⌉`` of each, in order.

    Args:
        capacities: bytes by NUMA node (a machine with one: ``{0: …}``).
        block_size: bytes, above 0.

    At most :data:`MAX_BLOCKS` ids in all, shared out by capacity; a larger machine needs larger blocks to lend it all.
    """
    counts = {numa: -(-capacity // block_size) for numa, capacity in sorted(capacities.items())}
    total = sum(counts.values())
    if total > MAX_BLOCKS:
        counts = {numa: count * MAX_BLOCKS // total for numa, count in counts.items()}
    return {f"{_PREFIX}-n{numa}-{number:05}": numa for numa, count in counts.items() for number in range(count)}


@dataclass(frozen=True, slots=True)
class Ledger:
    """All blocks of the node by id. Every method gives a new ledger; blocks never leave it."""

    blocks: Mapping[str, Block] = field(default_factory=dict)

    @staticmethod
    def of(ids: Mapping[str, int]) -> "Ledger":
        """A ledger in which every block is withdrawn."""
        return Ledger({name: Block(name, numa) for name, numa in ids.items()})

    # -- questions --------------------------------------------------------------------------------------------

    def count(self, *states: State) -> int:
        return sum(block.state in states for block in self.blocks.values())

    def held(self) -> dict[str, Block]:
        """Blocks that a pod holds or has just been given, retired ones too."""
        return {name: block for name, block in self.blocks.items() if _in_use(block)}

    def numa_of(self, block_id: str) -> int | None:
        block = self.blocks.get(block_id)
        return None if block is None else block.numa

    # -- transitions ------------------------------------------------------------------------------------------

    def offer(self, blocks_by_numa: Mapping[int, int]) -> "Ledger":
        """Make as many blocks healthy on each NUMA node as given, held ones included; a missing NUMA node counts 0.

        Held blocks stay as they are even where they are more than that. Which free ids are offered depends only on the
        ledger and the numbers: those offered before first, then the lowest, so that few ids flip.
        """
        changed: dict[str, Block] = {}
        for numa in {block.numa for block in self.blocks.values()}:
            mine = [block for block in self.blocks.values() if block.numa == numa]
            wanted = blocks_by_numa.get(numa, 0) - sum(block.state is State.HELD for block in mine)
            free = [block for block in mine if block.state in (State.OFFERED, State.WITHDRAWN)]
            free.sort(key=lambda block: (block.state is not State.OFFERED, block.id))
            for place, block in enumerate(free):
                state = State.OFFERED if place < wanted else State.WITHDRAWN
                if state is not block.state:
                    changed[block.id] = replace(block, state=state)
        return self._with(changed)

    def assign(self, ids: Iterable[str], at_s: float) -> "Ledger":
        """The kubelet has chosen these ids for a pod that it does not name.

        A block that had a holder loses it: the kubelet, which gave it away again, knows that the pod is gone. An id
        that is not listed (from before the agent's start, with another block size) becomes retired.
        """
        changed = {}
        for name in ids:
            block = self.blocks.get(name) or Block(name, _numa_in(name), State.RETIRED)
            state = State.RETIRED if block.state is State.RETIRED else State.HELD
            changed[name] = replace(block, state=state, holder=None, assigned_at_s=at_s)
        return self._with(changed)

    def settle(self, holders: Mapping[str, Holder], gone: Collection[str]) -> "Ledger":
        """Take over what the kubelet's list says.

        Args:
            holders: block id to its holder, for every id in the list.
            gone: ids in use whose pod is known to have ended; ids in neither argument stay as they are.
        """
        changed: dict[str, Block] = {}
        for name, holder in holders.items():
            block = self.blocks.get(name) or Block(name, _numa_in(name), State.RETIRED)
            state = State.RETIRED if block.state is State.RETIRED else State.HELD
            changed[name] = replace(block, state=state, holder=holder, assigned_at_s=None)
        for name in gone:
            known = self.blocks.get(name)
            if known is None or name in holders or not _in_use(known):
                continue
            state = State.RETIRED if known.state is State.RETIRED else State.OFFERED
            changed[name] = replace(known, state=state, holder=None, assigned_at_s=None)
        return self._with(changed)

    def _with(self, changed: Mapping[str, Block]) -> "Ledger":
        differing = {name: block for name, block in changed.items() if self.blocks.get(name) != block}
        return Ledger({**self.blocks, **differing}) if differing else self


def check_invariants(ledger: Ledger, listed_before: Collection[str] = ()) -> tuple[str, ...]:
    """What must never be otherwise, as sentences; nothing means all is well.

    Args:
        listed_before: ids that have been shown to the kubelet.
    """
    broken = [f"{name} has left the list" for name in listed_before if name not in ledger.blocks]
    for name, block in ledger.blocks.items():
        if block.id != name:
            broken.append(f"{name} stands for {block.id}")
        if block.state in (State.OFFERED, State.WITHDRAWN) and _in_use(block):
            broken.append(f"{name} is {block.state} but in use")
        if block.state is State.HELD and not _in_use(block):
            broken.append(f"{name} is held by nobody and was given to nobody")
        if block.holder is not None and block.assigned_at_s is not None:
            broken.append(f"{name} has a holder and was given away since")
    return tuple(broken)


def _in_use(block: Block) -> bool:
    return block.holder is not None or block.assigned_at_s is not None


def _numa_in(block_id: str) -> int:
    """The NUMA node that an id of ours names, else 0."""
    parts = block_id.split("-")
    digits = parts[1].removeprefix("n") if len(parts) == 3 and parts[0] == _PREFIX else ""
    return int(digits) if digits.isascii() and digits.isdigit() else 0
