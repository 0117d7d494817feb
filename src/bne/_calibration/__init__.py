"""The calibration function G: its constructions, its base law, and draws of its ratio."""
