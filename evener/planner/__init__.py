"""Plans: the search for a partition, a placement and a schedule, with a lower bound."""
