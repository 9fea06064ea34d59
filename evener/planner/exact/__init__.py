"""Proofs and improvements by constraint programming (CP-SAT)."""
