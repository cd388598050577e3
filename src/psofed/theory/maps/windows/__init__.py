"""Round-robin windows with an offset per client over white inputs, compiled: one iteration for given offsets."""
