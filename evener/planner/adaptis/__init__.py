"""AdaPtis' search as published: a beam over partitions, placements near the regular one."""
