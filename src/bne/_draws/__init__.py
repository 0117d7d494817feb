"""Posterior draws of one stage, and of all stages of a fit."""
