"""The paper's experiments, each stored as it runs: ``make paper FIGURE=fig2``."""
