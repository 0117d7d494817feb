"""All temperature forecasts of January 2004: every row, eight models, and a map of the region.

``python benchmarks/weather.py`` (from the project's folder, or with BNE_DATA set) is fitted to the
17,879 rows of 4 to 29 January. The inputs are the places, because the grid of 8,188 points has no
other ones. It scores the 712 stations of 31 January and draws the map of that day to
``docs/images/weather_map.png``. It takes a quarter of an hour, and a killed run can be continued.
``make paper FIGURE=real`` scores the same forecasts with elevation as one more input.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from stages import min_ess_of_answers
from store import FOLDER, resume

from bne import plots
from paper import real
from paper.scores import fitted_stages, observed_scores, stages_of

EXPERTS = real.WEATHER_MODELS
PLACE = ["longitude", "latitude"]
SETTINGS = {"chains": 2, "n_jobs": 2, "random_state": 0, "geographic": PLACE}
LENGTH = {"warmup": 400, "draws": 500}
PICTURE = FOLDER.parents[1] / "docs" / "images" / "weather_map.png"


def fitted(warmup, draws):
    """Fit, score every stage on the 31st, and draw the map."""
    train, test = real.weather()
    folder = Path("out") / f"weather-{warmup}-{draws}"
    length = {"warmup": warmup, "draws": draws, "checkpoint": str(folder)}
    y = train["observation"].to_numpy(float)
    model, seconds = fitted_stages(train, y, EXPERTS, PLACE, **SETTINGS, **length)
    model.save(folder.with_suffix(".bne"))
    draw(model)
    rows = test[PLACE + EXPERTS]
    sampled = {"rows": len(train), "seconds": seconds} | min_ess_of_answers(model, 40)
    return [
        {"stage": name} | observed_scores(law(rows), test["observation"].to_numpy(float)) | sampled
        for name, law in stages_of(model).items()
    ]


def draw(model):
    """Draw six maps of the 31st."""
    mpl.use("Agg")
    grid = pd.read_csv(real.folder() / "uw_srft_2004/srftGrid_valid20040131.csv.gz")
    axes = plots.maps(model, grid[PLACE + EXPERTS], grid[PLACE])
    axes[0, 0].set_title("temperature on 31 January, K")
    axes[0, 0].figure.savefig(PICTURE, dpi=80)


def run():
    """Run the one fit, if it is not stored yet."""
    if not (real.folder() / "uw_srft_2004").exists():
        print(f"Skipped: no uw_srft_2004 in {real.folder()}.")
        return []
    return resume("weather_rows", [LENGTH], fitted).to_dict("records")


if __name__ == "__main__":
    print(pd.DataFrame(run()).to_string())
