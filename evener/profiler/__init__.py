"""Measures layers and links on the machine at hand. Needs torch; what it writes does not."""

from evener.profiler.links import fit_link, measure_links, typical_links
from evener.profiler.measure import bench_of, measure_model
from evener.profiler.options import MeasureOptions
from evener.profiler.peers import Messenger, Peers
from evener.profiler.slices import slice_latencies

__all__ = [
    "MeasureOptions",
    "Messenger",
    "Peers",
    "bench_of",
    "fit_link",
    "measure_links",
    "measure_model",
    "slice_latencies",
    "typical_links",
]
