"""One HTML page about a fitted model, which loads nothing else."""

from bne.report._page import LAYERS, training_frame, write_report

__all__ = ["LAYERS", "training_frame", "write_report"]
