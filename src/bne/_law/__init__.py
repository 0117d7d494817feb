"""Draws to predictive distributions: the one bridge that every answer reads."""
