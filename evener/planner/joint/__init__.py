"""Partition, placement and schedule searched together: annealing, with a compiled judge."""
