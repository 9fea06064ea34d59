"""Groups of GPUs by SPLIT, the approximation of a minimum k-cut that Zorse plans with.

Saran and Vazirani, "Finding k-cuts within twice the optimal", 1995: cut the lightest global
minimum cut of any part, until there are k parts; no more than 2 - 2/k times the best cut.  The
minimum cuts are Stoer and Wagner's.
"""

from itertools import combinations

import networkx as nx

from evener.planner.zorse.fleet import Fleet

_BYTES_PER_WEIGHT = 1e9


def split_groups(fleet: Fleet, num_groups: int) -> tuple[tuple[int, ...], ...]:
    """The GPUs in so many groups, between which links are slow; each group in ascending order.

    A link weighs its gigabytes per second, rounded down, and no less than 1. Source: section 4.
    """
    parts = [nx.Graph(_graph(fleet))]
    while len(parts) < num_groups:
        cuts = [
            (*nx.stoer_wagner(part), number)
            for number, part in enumerate(parts)
            if part.number_of_nodes() > 1
        ]
        _, halves, number = min(cuts, key=lambda cut: (cut[0], cut[2]))
        whole = parts.pop(number)
        parts += [nx.Graph(whole.subgraph(half)) for half in halves]
    return tuple(sorted(tuple(sorted(part)) for part in parts))


def _graph(fleet: Fleet) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(fleet.gpus)))
    for a, b in combinations(range(len(fleet.gpus)), 2):
        link = fleet.link(fleet.gpus[a].machine, fleet.gpus[b].machine)
        graph.add_edge(a, b, weight=max(1, int(link.bytes_per_s / _BYTES_PER_WEIGHT)))
    return graph
