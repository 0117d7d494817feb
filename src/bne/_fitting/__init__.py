"""From rows to posterior draws: the design, the densities, the stages, the shards."""
