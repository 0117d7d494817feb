"""Rows to posterior draws: what is chosen, the densities, the stages, the shards."""
