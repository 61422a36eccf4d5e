"""How many blocks are offered: grow slowly, shrink at once.

The sum of one moment flickers: a process starts and ends, and a block is lent or not. What is offered follows it so:

* a smaller sum is followed at once; the offer is never above the sum;
* a larger one is believed only as far as it has lasted: the offer grows to the *smallest* sum of the last
  ``grow_interval_s``, and at most once in that time. Noise of a block or two therefore ends at its lower edge and stays
  there;
* a reading that is stale never grows it;
* on a node that must not lend (see ``Headroom.reasons``) nothing is offered, but what was is remembered, so that
  lending comes back at once when it may.

Times are monotonic seconds, so that a step of the wall clock changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NumaOffer:
    """What is offered on one NUMA node, and the sums that led there: (seconds, blocks), oldest first."""

    blocks: int
    grown_at_s: float
    sums: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """The offer by NUMA node. ``lending`` False: nothing is offered whatever stands in ``numa``."""

    numa: Mapping[int, NumaOffer] = field(default_factory=dict)
    lending: bool = False

    def blocks_by_numa(self) -> dict[int, int]:
        """Blocks to show as healthy on each NUMA node, those held included."""
        return {numa: offer.blocks if self.lending else 0 for numa, offer in self.numa.items()}

    @property
    def blocks(self) -> int:
        return sum(self.blocks_by_numa().values())


def next_offer(
    offer: Offer, sums: Mapping[int, int], *, lending: bool, fresh: bool, at_s: float, grow_interval_s: float
) -> Offer:
    """The offer after a reading.

    Args:
        sums: blocks by NUMA node as the sum gives them, from the newest reading there is.
        lending: whether the node may lend at all.
        fresh: whether that reading was made now; a stale one leaves the offer as it is.
        at_s: monotonic seconds of now.
        grow_interval_s: the least time between two growths, and how long a larger sum must last.

    A NUMA node that is seen for the first time is offered what it has.
    """
    if not fresh or not lending:
        return Offer(offer.numa, lending)
    return Offer(
        {numa: _next(offer.numa.get(numa), total, at_s, grow_interval_s) for numa, total in sums.items()}, lending
    )


def _next(before: NumaOffer | None, total: int, at_s: float, grow_interval_s: float) -> NumaOffer:
    if before is None:
        return NumaOffer(total, at_s, ((at_s, total),))
    sums = _lasting((*before.sums, (at_s, total)), at_s - grow_interval_s)
    if total < before.blocks:
        return NumaOffer(total, before.grown_at_s, sums)
    lasted = min(blocks for _, blocks in sums)
    covered = sums[0][0] <= at_s - grow_interval_s
    if lasted > before.blocks and covered and at_s - before.grown_at_s >= grow_interval_s:
        return NumaOffer(lasted, at_s, sums)
    return NumaOffer(before.blocks, before.grown_at_s, sums)


def _lasting(sums: tuple[tuple[float, int], ...], since_s: float) -> tuple[tuple[float, int], ...]:
    """The sums since ``since_s`` and the last one before, which was in force at that moment."""
    old = [place for place, (seconds, _) in enumerate(sums) if seconds <= since_s]
    return sums[old[-1] :] if old else sums
