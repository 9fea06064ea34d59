"""Planning anew while training: what has changed, a search beside the run, and when to switch."""
