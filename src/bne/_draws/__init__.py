"""Posterior draws: of a stage, and of all stages of a fit."""
