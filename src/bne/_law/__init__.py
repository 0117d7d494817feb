"""Predictive distributions, made from draws: every answer is computed from them."""
