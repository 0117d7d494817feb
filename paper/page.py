"""The page that compares the paper's claims with what was measured; it reads stored tables only."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bne._stage_names import BAE, BNE, ENSEMBLE
from paper.simulated import read_wave

HOLDS, PARTLY, FAILS = "holds", "holds partly", "does not hold"

INTRODUCTION = """# The paper's claims, measured

Every number on this page comes from a table in this folder. A row of a `_rows.csv` file is one
method on one data set. `make paper` runs the experiments that are missing and writes this page
anew. A method is left out where it cannot run: without inputs, with one model only, or with too
many inputs or rows. Means are over the data sets on which all methods have run.

The methods are the three stages of the model and comparators. The stages are `ensemble` (weights
only), BAE (`additive`, with the residual process) and BNE (`full`, with the calibration function G
as well). The comparators are stack (Bayesian stacking), BME (a Bayesian mixture of experts),
CondKDE (conditional kernel density estimate), DeepEns (Deep Ensembles), NGBoost and QRF (quantile
regression forest). L1 is the mean distance of the predictive CDF from the true one. nll is the
negative log score.
"""


class Claim(NamedTuple):
    """A claim of the paper, what was measured, and the verdict."""

    sentence: str
    measured: str
    verdict: str


def verdict(*conditions: bool) -> str:
    """Return the verdict: whether all, some or none of the conditions are true."""
    return HOLDS if all(conditions) else PARTLY if any(conditions) else FAILS


def gamma_claims(folder: Path) -> Iterator[Claim]:
    """Claims of Figure 2."""
    rows = pd.read_csv(folder / "fig2_rows.csv")
    means = rows.groupby("method")[["l1", "mode"]].mean()
    full, gaussian = means.loc[BNE], means.loc[ENSEMBLE]
    yield Claim(
        "Figure 2: the full model follows a skewed outcome that the Gaussian ensemble cannot.",
        f"{rows['seed'].nunique()} sets: L1 {full.l1:.3f} against {gaussian.l1:.3f} (empirical CDF "
        f"{means.loc['empirical CDF', 'l1']:.3f}); mode {full['mode']:.2f} against "
        f"{gaussian['mode']:.2f}, truth 1.",
        verdict(full.l1 < 0.6 * gaussian.l1, abs(full["mode"] - 1) < abs(gaussian["mode"] - 1)),
    )


def stage_claims(folder: Path) -> Iterator[Claim]:
    """Claims of Figure 3."""
    parts = pd.read_csv(folder / "fig3.csv")
    inside = parts[parts["x"].abs() <= 4.5].groupby("stage")
    outside = parts[parts["x"].abs() >= 7].groupby("stage")
    spread = inside["aleatoric"].agg(np.ptp)
    yield Claim(
        "Figure 3: BAE's aleatoric uncertainty is roughly constant throughout x; the full model "
        "accounts for the heterogeneity of the noise.",
        f"Aleatoric entropy over |x| <= 4.5 varies by {spread['additive']:.2f} nats under BAE and "
        f"by {spread['full']:.2f} under BNE.",
        verdict(spread["additive"] < 0.1, spread["full"] > 0.5),
    )
    near, far = (g["structural_delta"].mean()["additive"] for g in (inside, outside))
    yield Claim(
        "Figure 3: the residual process increases the uncertainty where data are scarce.",
        f"structural_delta under BAE: {near:.3f} nats inside the data, {far:.3f} at |x| >= 7.",
        verdict(far > 2 * near),
    )


def convergence_claims(folder: Path) -> Iterator[Claim]:
    """Claims of Figure 4, for each variant."""
    rows = read_wave(folder)
    for variant, part in rows.groupby("variant"):
        counts = part.groupby("n")["repeat"].nunique()
        name = f"Figure 4, variant {variant}"
        repeats = ", ".join(f"{k} sets at n = {n}" for n, k in counts.items())
        yield from _shape_claims(part, name, repeats)
        yield from _comparison_claims(part, name)


def _series(table: pd.DataFrame, method: str) -> str:
    """Write a method's scores by n, smallest n first."""
    return f"{method} " + " / ".join(f"{v:.3f}" for v in table[method])


def _comparators_in(table: pd.DataFrame) -> list[str]:
    """Return the methods to compare with BNE; the Gaussian ensemble is not one of them."""
    return [method for method in table if method not in (BNE, ENSEMBLE)]


def _shape_claims(rows: pd.DataFrame, name: str, repeats: str) -> Iterator[Claim]:
    """Claims about how the scores of each method fall with n."""
    table = rows.pivot_table(index="n", columns="method", values="l1")
    rmse = rows.pivot_table(index="n", columns="method", values="rmse_mean")
    improves = {c: bool(np.all(np.diff(table[c]) < 0)) for c in table}
    last, gain = table.iloc[-1], table.iloc[-1] / table.iloc[0]
    compared = [*_comparators_in(table), BNE]
    similar = table[compared].stack().corr(rmse[compared].stack(), method="spearman")
    yield Claim(
        f"{name}: the patterns of RMSE and L1 are similar.",
        f"Rank correlation over methods and n: {similar:.2f} ({repeats}).",
        verdict(similar > 0.8),
    )
    stable = ("stack", BAE)
    yield Claim(
        f"{name}: stack and BAE stabilise at higher values.",
        f"L1 by n: {'; '.join(_series(table, m) for m in (*stable, BNE))}. From the smallest to "
        f"the largest n: {gain['stack']:.2f}, {gain[BAE]:.2f} and {gain[BNE]:.2f} times.",
        verdict(*(gain[m] > gain[BNE] and last[m] > last[BNE] for m in stable)),
    )
    flexible = ("BME", "DeepEns", "CondKDE", BNE)
    yield Claim(
        f"{name}: BME, DeepEns, CondKDE and BNE continuously improve.",
        "; ".join(_series(table, m) for m in flexible) + ".",
        verdict(*(improves[m] for m in flexible)),
    )


def _comparison_claims(rows: pd.DataFrame, name: str) -> Iterator[Claim]:
    """Claims about BNE beside the comparators."""
    table = rows.pivot_table(index="n", columns="method", values="l1")
    small = table.iloc[0]
    yield Claim(
        f"{name}: DeepEns generalises worse than BNE in small samples.",
        f"L1 at n = {table.index[0]}: {small['DeepEns']:.3f} against {small[BNE]:.3f}.",
        verdict(small["DeepEns"] > small[BNE]),
    )
    ratio = table[BNE] / table["CondKDE"]
    medians = rows.pivot_table(index="n", columns="method", values="l1", aggfunc="median")
    typical = medians[BNE] / medians["CondKDE"]
    yield Claim(
        f"{name}: BNE and CondKDE are comparable.",
        f"L1 of BNE over that of CondKDE by n: {' / '.join(f'{v:.2f}' for v in ratio)}; of the "
        f"medians over sets {' / '.join(f'{v:.2f}' for v in typical)} (in some sets the "
        "cross-validated bandwidths degenerate).",
        verdict(bool(np.all((ratio > 0.8) & (ratio < 1.25)))),
    )
    best = table[_comparators_in(table)].min(axis=1) / table[BNE]
    yield Claim(
        f"{name} (ours): BNE is below every comparator at the smallest n, and within 5% of the "
        "best at the largest.",
        "L1 of the best comparator over BNE's by n: " + " / ".join(f"{v:.2f}" for v in best) + ".",
        verdict(best.iloc[0] > 1, best.iloc[-1] > 1 / 1.05),
    )


def consistency_claims(folder: Path) -> Iterator[Claim]:
    """Claims of Theorem 1."""
    rows = read_wave(folder)
    rows = rows[rows["method"] == BNE]
    for variant, part in rows.groupby("variant"):
        medians = part.groupby("n")["l2_median"].mean()
        masses = part.groupby("n")[[c for c in part if c.startswith("mass_")]].mean()
        falling = bool(np.all(np.diff(masses, axis=0) <= 0.0))
        last = masses.iloc[:, -1]
        yield Claim(
            f"Theorem 1, variant {variant}: the posterior concentrates at the true F in L2.",
            f"Median distance by n: {' / '.join(f'{v:.3f}' for v in medians)}; posterior mass "
            f"beyond {masses.columns[-1].removeprefix('mass_')}: "
            f"{' / '.join(f'{v:.2f}' for v in last)}.",
            verdict(bool(np.all(np.diff(medians) < 0)), falling),
        )


def coverage_claims(folder: Path) -> Iterator[Claim]:
    """Claims about coverage, on the 1-D experiment."""
    rows = read_wave(folder)
    rows = rows[rows["method"] == BNE]
    for variant, part in rows.groupby("variant"):
        by_n = part.groupby("n")["coverage_90"].mean()
        yield Claim(
            f"Section 3.2, variant {variant}: the predictive distribution is calibrated.",
            "90% intervals of BNE cover, by n: "
            + " / ".join(f"{n}: {v:.3f}" for n, v in by_n.items())
            + " of fresh observations.",
            verdict(bool(np.all((by_n > 0.87) & (by_n < 0.93)))),
        )


def map_claims(folder: Path) -> Iterator[Claim]:
    """Claims of Figure 5."""
    parts = pd.read_csv(folder / "fig5.csv")
    share = parts["epistemic"].sum() / parts["total"].sum()
    yield Claim(
        "Figure 5: the overall uncertainty is driven mainly by the epistemic parts.",
        f"{share:.0%} of the variance at the monitors is epistemic. Two of the three models and "
        "some monitors differ from the paper's.",
        verdict(share > 0.5),
    )
    low, high = parts["delta_prob_positive"].min(), parts["delta_prob_positive"].max()
    yield Claim(
        "Section 5: P(D_delta > 0) gives evidence of over-estimation north of Boston and in "
        "Worcester.",
        f"Over the monitors it lies between {low:.2f} and {high:.2f}. A value near 0 would mean "
        "that the models are too high.",
        verdict(low < 0.1),
    )
    twin = pd.read_csv(folder / "fig5_twin.csv", index_col="method").loc[BNE]
    repeats = pd.read_csv(folder / "fig5_rows.csv")["repeat"].nunique()
    yield Claim(
        "Figure 5 (ours): on a simulated twin of the monitors, whose truth is known, intervals "
        "cover and the bias is found.",
        f"{repeats} twins: 90% intervals cover {twin['coverage_90']:.3f} over the whole map; "
        f"the mean of P(D_delta > 0) is {twin['prob_low_on_hill']:.2f} where the planted bias is "
        f"more than half its height and {twin['prob_low_off_hill']:.2f} on the rest of the map, "
        "which includes the lower slopes of the bias.",
        verdict(
            0.87 < twin["coverage_90"] < 0.93,
            twin["prob_low_on_hill"] > twin["prob_low_off_hill"] + 0.2,
        ),
    )


SECTIONS: tuple[tuple[str, Callable[[Path], Iterator[Claim]]], ...] = (
    ("fig2_rows.csv", gamma_claims),
    ("fig3.csv", stage_claims),
    ("fig4_rows.csv", convergence_claims),
    ("fig4_rows.csv", consistency_claims),
    ("fig4_rows.csv", coverage_claims),
    ("fig5.csv", map_claims),
)

GOALS = {
    ("uw_srft_2004", "crps"): (0.0, 1.30),
    ("uw_srft_2004", "coverage_90"): (0.87, 0.96),
    ("eu_pm10_2010", "rmse"): (0.0, 0.92),
    ("eu_pm10_2010", "coverage_90"): (0.87, 0.95),
    ("eastma_pm25_2011", "crps"): (0.0, 0.50),
    ("eastma_pm25_2011", "coverage_90"): (0.82, 0.98),
    ("epf_np", "crps"): (0.0, 2.04),
    ("epf_np/spread", "crps"): (0.0, 2.04),
}
"""Goals of the full model on real data: the least and the greatest value of a score."""

REASONS = {
    "eastma_pm25_2011": "There are only some 43 monitors to learn from, and whole regions are held "
    "out. The residual process then corrects little and adds uncertainty: the ensemble alone "
    "scores better.",
    "epf_np": "In the year of the held-out rows the models have larger errors than in the training "
    "year, and mostly of one sign. A model that is confident about the training year is too "
    "confident later.",
    "epf_np/spread": "The experts' spread became an input after the goal was missed without it, "
    "and because it helps from one part of the training year to the rest. It improves coverage "
    "and the log score. But experts that disagree widely, as they mostly do in the later year, had "
    "larger errors in the training year than later, so the intervals are too wide there.",
    "eu_pm10_2010": "See the other methods' scores on the same splits.",
    "uw_srft_2004": "The models' errors differ from day to day, in mean and in spread. An interval "
    "that must hold on any day is too wide on an ordinary day. All other methods cover more than "
    "90% on this day, too. The table `uw_srft_2004/days` shows nine other days.",
}
"""Why a goal is missed, in case it is."""

PICTURES = {
    "fig2": "Figure 2: three densities of a Gamma outcome",
    "fig3": "Figure 3: six panels",
    "fig4": "Figure 4: RMSE and L1 against n, means and standard errors",
    "theorem1": "Theorem 1: posterior mass away from the truth",
    "fig5": "Figure 5: maps over Eastern Massachusetts",
}


def page(folder: Path) -> str:
    """Return the page as Markdown, with all claims whose tables exist."""
    lines = [INTRODUCTION, "| the paper says | we measured | verdict |", "|---|---|---|"]
    for table, claims in SECTIONS:
        if (folder / table).exists():
            lines += [
                "| " + " | ".join(c.replace("|", "\\|") for c in claim) + " |"
                for claim in claims(folder)
            ]
    if (folder / "real.csv").exists():
        lines += ["", *_real_lines(pd.read_csv(folder / "real.csv"))]
    for name, title in PICTURES.items():
        if (folder / f"{name}.png").exists():
            lines += ["", f"## {title}", "", f"![{title}]({name}.png)"]
    return "\n".join(lines) + "\n"


def _real_lines(table: pd.DataFrame) -> list[str]:
    """Return the scores on real data, set by set, and the goals."""
    lines = ["## Real data beyond the paper", ""]
    lines += [
        "Scores on held-out rows, pooled over splits. Lower is better, except for coverage.",
        "",
    ]
    columns = ["method", "crps", "nll", "rmse", "coverage_50", "coverage_90", "splits"]
    for name, rows in table.groupby("data", sort=False):
        lines += [f"### {name}", "", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
        for row in rows[columns].itertuples(index=False):
            cells = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in row]
            lines.append("| " + " | ".join(cells).replace("nan", "") + " |")
        lines.append("")
    lines += ["| goal for BNE | measured | verdict | |", "|---|---|---|---|"]
    ours = table[table["method"] == BNE].set_index("data")
    for (name, score), (low, high) in GOALS.items():
        if name in ours.index:
            value = ours.loc[name, score]
            goal = f"at most {high}" if low == 0.0 else f"{low} to {high}"
            met = low <= value <= high
            why = "" if met else REASONS[name]
            word = HOLDS if met else FAILS
            lines.append(f"| {name}: {score} {goal} | {value:.3f} | {word} | {why} |")
    return lines
