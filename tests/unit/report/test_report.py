"""The report in a real browser: it opens, switches, says values on hover, and fetches nothing."""

import json
import re
import shutil
import time

import numpy as np
import pandas as pd
import pytest

from bne._regressor.wide_table import wide_table

pytest.importorskip("plotly")

from bne import BNERegressor
from bne.report import training_frame, write_report
from conftest import shifted

QUICK = {"chains": 2, "warmup": 30, "draws": 30, "random_state": shifted(0), "calibration": None}
EVIL = "<script>document.title='broken'</script>"


def fitted(n_inputs, n=40):
    rng = np.random.default_rng(shifted(0))
    inputs = ["east", "north", "height"][:n_inputs]
    X = pd.DataFrame(rng.normal(size=(n, n_inputs)), columns=inputs)
    X[EVIL], X["b"] = rng.normal(size=(2, n))
    y = X[EVIL] + 0.3 * rng.normal(size=n)
    model = BNERegressor([(c.strip("<>"), c) for c in (EVIL, "b")], inputs=inputs, **QUICK)
    return model.fit(X, y), X, y.to_numpy()


@pytest.fixture(scope="module", params=[0, 1, 2, 3], ids=lambda k: f"{k} inputs")
def page(request, tmp_path_factory):
    model, *_ = fitted(request.param)
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(model, path, title=f"Title {EVIL}")
    return path


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, without a network."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    switches = "--headless=new --no-sandbox --disable-gpu --window-size=1100,1500"
    for switch in [*switches.split(), "--host-resolver-rules=MAP * ~NOTFOUND"]:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    opened = webdriver.Chrome(options=options, service=service)
    yield opened
    opened.quit()


def paths(browser):
    script = "return document.querySelector('#plot-prediction .plot-container').innerHTML"
    return browser.execute_script(script)


@pytest.mark.slow
def test_the_page_in_a_browser(browser, page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    browser.get(page.as_uri())
    time.sleep(0.5)
    assert browser.title.startswith("Title <script>")
    assert EVIL.strip("<>") in browser.find_element(By.ID, "weights").text
    before, text = paths(browser), browser.find_element(By.ID, "layer-text").text
    layers = Select(browser.find_element(By.ID, "layer"))
    assert len(layers.options) >= 4
    layers.select_by_visible_text("Uncertainty: noise")
    time.sleep(0.3)
    assert paths(browser) != before
    assert browser.find_element(By.ID, "layer-text").text != text
    fetched = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )
    assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []
    assert browser.get_log("browser") == []
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= browser.execute_script("return window.innerWidth")


@pytest.mark.slow
def test_hovering_shows_values(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    browser.get(page.as_uri())
    time.sleep(0.5)
    marker = browser.find_element(By.CSS_SELECTOR, "#plot-weights .scatterlayer .point")
    ActionChains(browser).move_to_element(marker).perform()
    time.sleep(0.5)
    labels = browser.find_elements(By.CSS_SELECTOR, "#plot-weights .hoverlayer text")
    assert any(re.search(r"\d", label.text) for label in labels)


def test_no_user_string_is_markup(page):
    text = page.read_text()
    assert EVIL not in text
    assert text.count("<script>") == text.count("</script>") == 2


def test_size_for_ten_thousand_places(tmp_path, monkeypatch):
    """Ten thousand rows of any answers: the page must stay under 8 MB."""
    from bne._answers import table as _table

    model, X, _ = fitted(2)
    few = wide_table(model, X)
    rng = np.random.default_rng(shifted(1))
    many = X.sample(10_000, replace=True, random_state=shifted(0)).reset_index(drop=True)
    many[["east", "north"]] = rng.normal(size=(10_000, 2))
    wide = few.sample(10_000, replace=True, random_state=shifted(0)).reset_index(drop=True)
    wide = wide * rng.uniform(0.9, 1.1, size=wide.shape)
    monkeypatch.setattr(_table, "answers", lambda *_, **__: wide)
    write_report(model, tmp_path / "r.html", many)
    assert (tmp_path / "r.html").stat().st_size < 8_000_000


@pytest.mark.parametrize("n_inputs", [0, 1, 2])
def test_a_negative_part_is_a_gap(n_inputs, tmp_path, monkeypatch):
    from bne._answers import table as _table

    model, X, _ = fitted(n_inputs)
    some = wide_table(model, X).assign(variance_structural_G=np.linspace(-1, 1, len(X)))
    monkeypatch.setattr(_table, "answers", lambda *_, **__: some)
    write_report(model, tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert "shape of the noise" in text
    layers = json.loads(re.search(r"const LAYERS = (.*);\n", text)[1])
    trace = layers[-1]["figure"]["data"][0]
    drawn = trace["y"] if n_inputs < 2 else trace["marker"]["color"]
    assert sum(v is not None for v in drawn) == np.sum(some["variance_structural_G"] >= 0)


def test_training_rows_come_back():
    model, X, y = fitted(3)
    frame, outcome = training_frame(model)
    pd.testing.assert_frame_equal(frame, X, rtol=1e-10)
    np.testing.assert_allclose(outcome, y, rtol=1e-10)


def test_geographic_training_rows_come_back():
    rng = np.random.default_rng(shifted(0))
    X = pd.DataFrame({"lon": rng.uniform(-73, -70, 30), "lat": rng.uniform(41, 43, 30)})
    X["a"] = rng.normal(size=30)
    model = BNERegressor([("a", "a")], inputs=["lon", "lat"], geographic=("lon", "lat"), **QUICK)
    model.fit(X, X["a"] + 0.1 * rng.normal(size=30))
    pd.testing.assert_frame_equal(training_frame(model)[0], X, rtol=1e-10)
    # 3 degrees of longitude at 42 north are about 248 km, 2 of latitude 222
    x = model.posterior_.rows.x * model.scaling_.x_scale
    assert np.ptp(x[:, 0]) == pytest.approx(111.195 * np.cos(np.deg2rad(42)) * 3, rel=0.1)
    assert model.scaling_.x_scale[0] == model.scaling_.x_scale[1]
