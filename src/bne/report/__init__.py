"""One self-contained HTML page about a fitted model."""

from bne.report.page import LAYERS, training_frame, write_report

__all__ = ["LAYERS", "training_frame", "write_report"]
