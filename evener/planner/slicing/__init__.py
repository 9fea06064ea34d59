"""Where to cut the sequences of a microbatch: one file per rule, ``registry`` has them by name."""
