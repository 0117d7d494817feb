"""Answers of a fitted model to its user: uncertainty, bias, weights, tables."""
