"""The paper's experiments, each stored as it runs: ``bne reproduce fig2``, or ``make paper``."""
