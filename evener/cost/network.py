"""Time of messages and collectives on a network of links with a latency and a bandwidth.

A message takes ``latency + bytes / bandwidth`` (Hockney, "The communication challenge for MPP",
Parallel Computing 20(3), 1994).  Collectives are the ring and binomial-tree algorithms of Thakur,
Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
19(1), 2005, on their slowest link.  Results are integers, rounded up.  Traffic that shares a link
is not slowed down here.
"""

from collections.abc import Iterable

from evener.spec.cluster import Link

NS_PER_S = 1_000_000_000


def transfer_ns(num_bytes: int, bytes_per_s: int) -> int:
    """Time to push bytes into a link, latency left out; 0 bytes per second means no limit."""
    if bytes_per_s == 0:
        return 0
    return -(-num_bytes * NS_PER_S // bytes_per_s)


def send_ns(num_bytes: int, link: Link) -> int:
    """Time from the start of a message until its last byte has arrived."""
    if num_bytes == 0:
        return 0
    return link.latency_ns + transfer_ns(num_bytes, link.bytes_per_s)


def slowest(links: Iterable[Link]) -> Link:
    """The worst latency and the worst bandwidth: a ring is as slow as that. None cost nothing."""
    links = tuple(links)
    limits = [link.bytes_per_s for link in links if link.bytes_per_s]
    return Link(max((link.latency_ns for link in links), default=0), min(limits, default=0))


def all_gather_ns(num_bytes: int, num_members: int, link: Link) -> int:
    """Ring all-gather: p - 1 rounds of one part each.

    num_bytes: size of the gathered result. num_members: p.
    """
    return _rounds_ns(num_members - 1, num_bytes, num_members, link)


def reduce_scatter_ns(num_bytes: int, num_members: int, link: Link) -> int:
    """Ring reduce-scatter: p - 1 rounds of one part each; adding up costs no time.

    num_bytes: size of each member's input. num_members: p.
    """
    return _rounds_ns(num_members - 1, num_bytes, num_members, link)


def all_reduce_ns(num_bytes: int, num_members: int, link: Link) -> int:
    """Ring all-reduce: a reduce-scatter, then an all-gather; 2 (p - 1) rounds of one part each.

    num_bytes: size of each member's input. num_members: p.
    """
    return _rounds_ns(2 * (num_members - 1), num_bytes, num_members, link)


def all_to_all_ns(num_bytes: int, num_members: int, link: Link) -> int:
    """Pairwise exchange: p - 1 rounds, in each one part goes out and one comes in.

    num_bytes: size of each member's input, of which one part stays at home. num_members: p.
    """
    return _rounds_ns(num_members - 1, num_bytes, num_members, link)


def broadcast_ns(num_bytes: int, num_members: int, link: Link) -> int:
    """Binomial tree: ceil(log2 p) rounds of the whole message."""
    return (num_members - 1).bit_length() * send_ns(num_bytes, link)


def _rounds_ns(num_rounds: int, num_bytes: int, num_parts: int, link: Link) -> int:
    """Rounds that each send one of the equal parts into which ``num_bytes`` is cut."""
    if num_bytes == 0 or num_rounds == 0:
        return 0
    if link.bytes_per_s == 0:
        return num_rounds * link.latency_ns
    pushing = -(-num_rounds * num_bytes * NS_PER_S // (num_parts * link.bytes_per_s))
    return num_rounds * link.latency_ns + pushing
