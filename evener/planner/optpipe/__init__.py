"""Offload, recomputation and split backward chosen together under a memory cap, after OptPipe."""
