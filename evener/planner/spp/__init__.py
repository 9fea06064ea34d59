"""SPP: devices in an order, stages by dynamic programming, microbatches by a list."""
