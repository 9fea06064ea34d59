"""Lower bounds on the step time, one per file; the proofs are in ``docs/design/bounds.md``."""
