"""Short names of the three stages in tables and figures. BAE and BNE are the paper's names."""

ENSEMBLE, BAE, BNE = "ensemble", "BAE", "BNE"
SHORT_NAMES = {"ensemble": ENSEMBLE, "additive": BAE, "full": BNE}
"""Short name of each stage: the original ensemble, with the residual process, with G as well."""
