"""Annual PM2.5 at 51 monitors around Eastern Massachusetts, from three exposure models.

``python examples/air_pollution.py MONITORS.csv`` fits the monitors, prints where the uncertainty
comes from and where the models are wrong, and draws both to ``out/air_pollution.png``. The file has
columns ``aqs`` (observed), ``pred_av``, ``pred_gs``, ``pred_caces`` (models), ``lon`` and ``lat``.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

from bne import BNERegressor, plots

MODELS = ["pred_av", "pred_gs", "pred_caces"]
PLACE = ["lon", "lat"]


def fit(monitors: pd.DataFrame, **settings) -> BNERegressor:
    """Weigh the three models; delta and G vary in space."""
    model = BNERegressor([(name, name) for name in MODELS], inputs=PLACE, **settings)
    return model.fit(monitors[PLACE + MODELS], monitors["aqs"])


def report(model: BNERegressor, monitors: pd.DataFrame) -> pd.DataFrame:
    """Parts of the variance (squared µg/m³), and what is said of the models, monitor by monitor."""
    X = monitors[PLACE + MODELS]
    parts = model.decompose(X, measure="variance").to_frame()
    bias = model.detect_bias(X).to_frame()[["delta_mean", "delta_prob_positive", "verdict"]]
    return parts.join(bias)


def main() -> None:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("monitors", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/air_pollution.png"))
    options = parser.parse_args()
    monitors = pd.read_csv(options.monitors, index_col="mon_id")
    model = fit(monitors, random_state=0, n_jobs=2, verbose=1)
    table = report(model, monitors)
    print(table.round(2).to_string())
    print(model.explain_weights().round(2).to_string())
    share = table["epistemic"].sum() / table["total"].sum()
    print(f"Epistemic share of the variance: {share:.0%}")
    X = monitors[PLACE + MODELS]
    axes = plots.maps(model, X, monitors[PLACE], observed=(monitors[PLACE], monitors["aqs"]))
    options.output.parent.mkdir(exist_ok=True)
    axes[0, 0].figure.savefig(options.output, dpi=110)
    plt.close(axes[0, 0].figure)
    print(f"Picture: {options.output}")


if __name__ == "__main__":
    main()
