"""The viewer's page in a browser: positions, keys, widths, two episodes side by side, and hostile strings."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from maze_pl.viewer.html_page import html_page
from tests.viewer.browser import DESKTOP, PHONE, Page, chromium
from tests.viewer.episode_documents import HOSTILE, array, document, observation, plain_episode, structured_episode

pytestmark = pytest.mark.slow  # a browser takes seconds to start

STEPS = 20


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    same = plain_episode("greedy", STEPS, seed=1)
    other = plain_episode("trained", STEPS + 5, seed=1)
    same["heads"], other["heads"] = plain_episode("", STEPS, 1)["heads"], plain_episode("", STEPS + 5, 1)["heads"]
    for episode, changed in ((same, []), (other, [7, 12])):
        action = np.zeros((episode["n_env_steps"], 1), int)
        action[changed] = 1
        episode["heads"]["0"]["direction"]["action"] = array(action, "int32")
    documents = {
        "structured": document(structured_episode("robots", STEPS, 3), title="Delivery robots"),
        "pair": document(same, other, structured_episode("robots", 6), title="Two", pairs=[[0, 1]]),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, content in documents.items():
        (folder / f"{name}.html").write_text(html_page(content), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in documents}


@pytest.fixture(scope="module")
def browser(pages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        page.open(pages["structured"])  # the first page takes seconds
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    yield browser
    assert browser.logs("browser") == []
    assert not [url for url in browser.requests if not url.startswith(("file://", "data:", "about:"))]


def test_keys_move_by_acts_and_by_env_steps(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"])
    assert page.place == "Step 1 of 20, act 1 of 3"
    visited = []
    for keys in (["ArrowRight"] * 4, ["Shift+ArrowRight"], ["ArrowRight"], ["Shift+ArrowLeft"], ["PageUp"], ["End"]):
        page.press(*keys)
        visited.append(page.place)
    assert [place.removeprefix("Step ") for place in visited] == [
        "2 of 20, act 2 of 3",
        "3 of 20, act 1 of 3",
        "3 of 20, act 2 of 3",
        "3 of 20, act 1 of 3",  # to the beginning of the step first
        "2 of 20, act 1 of 3",
        "20 of 20, act 3 of 3",
    ]
    page.press("ArrowRight")
    assert page.place == "Step 20 of 20, act 3 of 3"
    page.press("Home", "ArrowLeft")
    assert page.place == "Step 1 of 20, act 1 of 3"


def test_keys_belong_to_fields_while_somebody_types(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"])
    page.press("/")
    assert page.run("return document.activeElement.type") == "search"
    page.press("ArrowRight", "End", "d", " ")
    assert page.place == "Step 1 of 20, act 1 of 3"
    page.press("Escape", "ArrowRight")
    assert page.place == "Step 1 of 20, act 2 of 3"


def test_slider_strip_buttons_and_address_go_to_a_step(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"], address="#step=9")
    assert page.place.startswith("Step 10 ")
    page.run("const s = document.querySelector('#transport input'); s.value = 30; s.dispatchEvent(new Event('input'))")
    page.draw()
    assert page.place == "Step 11 of 20, act 1 of 3"
    assert page.run("return document.querySelector('#transport input').getAttribute('aria-valuetext')") == page.place
    page.click(".strip-plot")  # its middle
    assert page.place == "Step 11 of 20, act 1 of 3"
    page.click("button[aria-label='Next act']")
    page.click("button[aria-label='Next env step']")
    assert page.place == "Step 12 of 20, act 1 of 3"
    page.click(".acts li:nth-child(3) button")
    assert page.place == "Step 12 of 20, act 3 of 3"


def test_playing_ends_at_the_last_act(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"])
    page.choose("#transport select", "1")
    page.press(" ")
    assert page.run("return document.querySelector('.icon-play').getAttribute('aria-label')") == "Pause"
    page.press(" ")
    paused = page.place
    page.draw()
    assert page.place == paused
    page.choose("#transport select", "100")
    page.press("+", " ")
    assert page.run("return document.querySelector('#transport select').value") == "1000"
    page.wait("document.querySelector('.icon-play').getAttribute('aria-label') === 'Play'")
    page.draw()
    assert page.place == "Step 20 of 20, act 3 of 3"


def test_acts_show_their_decision_their_observation_and_their_outcome(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"])
    assert page.texts(".head h4") == ["order", "rotate", "tools"]
    assert page.texts(".observation h4") == ["inventory12 \u00d7 3", "map6 \u00d7 6", "weather1", "budget1"]
    assert "of 120 options allowed" in page.texts(".head .summary")[0]
    assert page.texts(".acts [aria-current]") == ["planagent 0"]
    page.press("ArrowRight", "ArrowRight")
    assert page.texts(".acts [aria-current]") == ["moveagent 1"]
    assert page.texts(".head h4") == ["force  normal", "gear", "code"]
    assert page.texts(".head h5") == ["part 1 of 2", "part 2 of 2"]
    assert page.texts(".curve .summary")[0].startswith("coordinate 0: taken ")
    assert page.texts(".figure dt") == ["Value", "Reward of the step", "Reward of the act", "Return so far"]
    assert page.texts(".kpis tbody tr") == ["wins03.500"]
    assert page.texts(".step-events li") == ["Game.hit power=0  by=right"]


def test_units_of_rewards_and_values_are_named(page: Page, tmp_path: Path) -> None:
    unit = "after ReturnNormalizationRewardWrapper"
    played, spaces_only = plain_episode("played", STEPS), plain_episode("read", STEPS)
    played["acts"]["unit"] = spaces_only["acts"]["unit"] = spaces_only["env_steps"]["unit"] = unit
    nothing = array(np.zeros(0), "int32")
    no_events = {"names": [], "env_step": nothing, "name": nothing, "attributes": [], "is_recorded": False}
    spaces_only["events"] = no_events
    without_return = {**spaces_only, "return_unit": unit}
    (tmp_path / "units.html").write_text(html_page(document(played, spaces_only, without_return)), encoding="utf-8")
    page.open(tmp_path / "units.html")
    assert page.texts(".figure dt") == ["Value, converted", "Reward of the step", "Return so far"]
    assert page.text(".units") == f"converted: {unit}" and "environment" not in page.text(".facts")
    page.open(tmp_path / "units.html", address="#episode=1")
    converted = ["Value, converted", "Reward of the step, converted", "Return so far, converted"]
    assert page.texts(".figure dt") == converted
    assert "in rewards of the environment" in page.text(".facts")
    assert page.texts(".step-events li") == ["not recorded"]
    page.open(tmp_path / "units.html", address="#episode=2")
    assert "converted return" in page.text(".facts") and "environment" not in page.text(".facts")


def test_normalised_observations_are_marked_and_have_one_scale(page: Page, tmp_path: Path) -> None:
    unit = "after RunningObservationNormalizationWrapper"
    episode = plain_episode("normalised", STEPS)
    values = np.tile([-2.0, 1.0], (STEPS, 1))
    episode["observations"]["0"] = {
        "state": observation("vector", values) | {"unit": unit},
        "goal": observation("vector", values, low=-10.0, high=10.0),
    }
    (tmp_path / "normalised.html").write_text(html_page(document(episode)), encoding="utf-8")
    page.open(tmp_path / "normalised.html")
    assert page.texts(".observation h4") == ["state2converted", "goal2"]
    assert page.texts(".observation-unit") == [f"converted: {unit}"]
    widths = "return [...document.querySelectorAll('.observation .fill')].map((fill) => fill.style.width)"
    assert page.run(widths) == ["66.6667%", "33.3333%", "10%", "5%"]


def test_heat_maps_show_the_range_that_was_seen(page: Page, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    columns = [generator.integers(0, 2, (STEPS, 6)), generator.uniform(0, 40, (STEPS, 6))]
    episode = plain_episode("tables", STEPS)
    wide = np.linspace(3, 9, STEPS * 36).reshape(STEPS, 6, 6)
    episode["observations"]["0"] = {
        "orders": observation("matrix", np.stack(columns, -1).astype(float), low=0.0, high=1000.0),
        "grid": observation("matrix", wide, low=0.0, high=100.0),
    }
    (tmp_path / "tables.html").write_text(html_page(document(episode)), encoding="utf-8")
    page.open(tmp_path / "tables.html")
    texts = [text for text in page.texts(".observation .legend span") if text]
    assert texts == ["min", "max of the column", "3", "9"]
    colours = """
        const canvas = document.querySelectorAll("canvas.heat")[0];
        const { data } = canvas.getContext("2d").getImageData(0, 0, 1, 6);
        return new Set(Array.from({ length: 6 }, (_, i) => data[4 * i])).size;
    """
    assert page.run(colours) == len(set(columns[0][0]))


def test_masked_sampled_and_most_likely_options_are_named_and_not_only_coloured(page: Page, tmp_path: Path) -> None:
    episode = plain_episode("masked", 1)
    episode["heads"]["0"]["direction"] |= {
        "labels": ["left", "right", "up", "down"],
        "probabilities": array([[0.25, 0.75, 0.0, 0.0]]),
        "allowed": array([[1, 1, 0, 0]], "uint8"),
        "action": array([[0]], "int32"),
        "most_likely": array([[1]], "int32"),
    }
    (tmp_path / "masked.html").write_text(html_page(document(episode)), encoding="utf-8")
    page.open(tmp_path / "masked.html")
    assert page.texts(".option") == [
        "0  left25.0%▼ taken",
        "1  right75.0%▽ most likely",
        "2  upmasked",
        "3  downmasked",
    ]
    style = "return getComputedStyle(document.querySelectorAll('.option .track')[arguments[0]]).backgroundImage"
    assert "repeating-linear-gradient" in page.run(style, 2)
    assert page.run(style, 1) == "none"


@pytest.mark.parametrize("has_mask", [True, False])
def test_each_of_several_choices_has_labels_of_its_options(page: Page, tmp_path: Path, has_mask: bool) -> None:
    episode = plain_episode("labelled", 1)
    episode["heads"]["0"]["direction"] |= {
        "kind": "multi_categorical",
        "sizes": [2, 3],
        "labels": ["5", "6", "-1", "0", "1"],
        "probabilities": None,
        "allowed": array([[1, 1, 1, 0, 1]], "uint8") if has_mask else None,
        "action": array([[1, 0]], "int32"),
        "most_likely": None,
    }
    (tmp_path / "labelled.html").write_text(html_page(document(episode)), encoding="utf-8")
    page.open(tmp_path / "labelled.html")
    assert page.texts(".head .summary")[0].startswith("Taken 1  6, 0  -1")
    options = ["0  5", "1  6\u25bc taken", "0  -1\u25bc taken", "1  0masked", "2  1"]
    assert page.texts(".option") == (options if has_mask else [])


def test_two_episodes_are_scrubbed_by_env_step_to_where_they_differ(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["pair"])
    assert page.texts(".pane h2") == ["Agreedy", "Btrained"]
    assert "first decide differently at step 8; 2 of 25 decisions differ" in page.text("#comparison")
    visited = []
    for key in ("d", "d", "d", "Shift+d", "f"):
        page.press(key)
        visited.append(page.place.split()[1])
    assert visited == ["8", "13", "8", "13", "8"]
    assert page.texts(".pane .head .summary")[0].startswith("Taken 0")
    assert page.texts(".pane .head .summary")[1].startswith("Taken 1")
    assert page.texts(".ended") == []
    page.press("End")
    assert page.place == "Step 25 of 25"
    assert page.texts(".ended") == ["This episode ended after 20 env steps; its last act is shown."]


def test_step_within_which_an_episode_ends_is_shown_but_not_counted(page: Page, tmp_path: Path) -> None:
    cut = {**plain_episode("cut", 3), "n_complete_env_steps": 2}
    (tmp_path / "page.html").write_text(html_page(document(cut)), encoding="utf-8")
    page.open(tmp_path / "page.html")
    assert "2 env steps and part of another" in page.text(".facts")
    page.press("End")
    assert page.place == "Step 3 of 3"


def test_a_phone_switches_between_two_episodes(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["pair"], PHONE)
    assert page.texts(".pane h2") == ["Agreedy"]
    page.press("f")
    page.click("#which button:nth-child(2)")
    assert page.texts(".pane h2") == ["Btrained"]
    assert page.place.startswith("Step 8 ")
    page.click("#which button:nth-child(3)")
    assert page.texts(".pane h2") == ["Agreedy", "Btrained"]
    page.click("#which button")
    page.resize(DESKTOP)
    page.draw()
    assert page.texts(".pane h2") == ["Agreedy", "Btrained"]
    assert page.texts("#which button") == []


def test_users_choose_the_episodes(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["pair"], address="#episode=1")
    assert page.texts(".pane h2") == ["trained"]
    page.press("ArrowRight", "ArrowRight")
    page.choose("#choices select:last-child", "2")
    page.wait("document.querySelectorAll('.pane').length === 2")
    assert page.place == "Step 3 of 25, act 1 of 3"
    page.press("Shift+ArrowRight")
    assert page.place == "Step 4 of 25, act 1 of 3"
    page.choose("#choices select:last-child", "")
    page.wait("document.querySelectorAll('.pane').length === 1")
    assert page.place == "Step 4 of 25"


def test_events_are_searched_filtered_and_lead_to_their_step(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"])
    assert page.text(".log-controls .muted") == "10 events"
    page.choose(".log-controls select", "Game.miss")
    assert page.text(".log-controls .muted") == "5 of 10 events"
    page.type(".log-controls input", "power=3 RIGHT")
    page.wait("document.querySelector('.log-controls .muted').textContent === '1 of 10 events'")
    page.click(".log-row")
    assert page.place.startswith("Step 7 of 20")
    page.type(".log-controls input", "nothing")
    page.wait("document.querySelector('.log-controls .muted').textContent === '0 of 10 events'")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_nothing_is_cut_off_at_the_width_of_a_laptop_and_of_a_phone(
    page: Page, pages: dict[str, Path], size: tuple[int, int], theme: str
) -> None:
    for name in ("structured", "pair"):
        page.open(pages[name], size, theme)
        assert page.run("return document.documentElement.scrollWidth") <= size[0]
        outside = """
            const nodes = [...document.querySelectorAll("button, select, input, canvas, img, h2, h4")];
            const isOutside = (box) => box.left < 0 || box.right > innerWidth + 0.5;
            return nodes.filter((node) => [...node.getClientRects()].some(isOutside)).map((node) => node.outerHTML);
        """
        assert page.run(outside) == []


LOW_CONTRAST = Path(__file__).with_name("low_contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_enough_contrast(page: Page, pages: dict[str, Path], theme: str) -> None:
    page.open(pages["structured"], theme=theme)
    assert page.run(LOW_CONTRAST) == []
    page.press("t")  # the other colours
    assert page.run(LOW_CONTRAST) == []


def test_controls_and_pictures_have_names_for_screen_readers(page: Page, pages: dict[str, Path]) -> None:
    for name in ("structured", "pair"):
        page.open(pages[name])
        unnamed = """
            const nodes = [...document.querySelectorAll("button, select, input, canvas, img")];
            const name = (node) => node.getAttribute("aria-label") || node.textContent || node.alt;
            return nodes.filter((node) => !name(node)).map((node) => node.outerHTML);
        """
        assert page.run(unnamed) == []
    page.press("ArrowRight")
    page.wait("document.getElementById('announcement').textContent.startsWith('Step 2 of 25: sub-step 0; sub-step 0')")


def test_help_lists_the_keys(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"])
    page.press("?")
    assert page.run("return document.getElementById('help').open")
    page.press("ArrowRight")
    assert page.place == "Step 1 of 20, act 1 of 3"
    page.click("#help button")
    assert not page.run("return document.getElementById('help').open")


def test_no_string_of_a_document_runs(page: Page, tmp_path: Path) -> None:
    episode = plain_episode(HOSTILE[0], 3)
    episode |= {"policy": HOSTILE[1], "kpis": dict.fromkeys(HOSTILE, 1.0)}
    episode["running_kpis"] = {name: array(np.zeros(3)) for name in HOSTILE}
    episode["env_steps"]["parts"] = {name: array(np.zeros(3)) for name in HOSTILE}
    episode["step_keys"] = [HOSTILE[5]]
    episode["events"] = {
        "names": list(HOSTILE),
        "env_step": array(np.zeros(6), "int32"),
        "name": array(np.arange(6), "int32"),
        "attributes": [{text: text, "deep": [{text: text}]} for text in HOSTILE],
    }
    state = observation("vector", np.ones((3, 6)), labels=list(HOSTILE))
    head = episode["heads"]["0"]["direction"] | {"labels": list(HOSTILE[:4])}
    episode["observations"] = {HOSTILE[5]: dict.fromkeys(HOSTILE, state)}
    episode["heads"] = {HOSTILE[5]: dict.fromkeys(HOSTILE, head)}
    index = array(np.arange(3), "int32")
    script = "<script>window.hacked=1</script>"
    images = [f"data:text/html,{script}", "data:image/png,x' onerror='window.hacked=1", HOSTILE[4]]
    episode["pictures"] = {"source": "frames", "alt": list(HOSTILE[:3]), "index": index, "per": "act", "images": images}
    path = tmp_path / "hostile.html"
    path.write_text(html_page(document(episode, episode, title=HOSTILE[3], pairs=[[0, 1]])), encoding="utf-8")
    page.open(path)
    page.press("ArrowRight", "ArrowRight")
    assert page.run("return window.hacked") is None
    assert page.run("return document.scripts.length") == 1
    assert page.text("h1") == HOSTILE[3]
    assert page.driver.title.startswith("'\"--><svg onload")
    assert page.texts(".pane h2 span:last-child") == [HOSTILE[0]] * 2
    assert set(page.texts(".log-name")) == set(HOSTILE)
    page.logs()


def test_the_page_permits_no_request(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["structured"])
    script = """
        const done = arguments[0];
        const image = new Image();
        image.onerror = () => fetch("http://127.0.0.1:9/").then(() => done("sent"), () => done("refused"));
        image.onload = () => done("loaded");
        image.src = "http://127.0.0.1:9/picture.png";
    """
    assert page.driver.execute_async_script(script) == "refused"
    messages = page.logs("browser")
    assert len(messages) >= 2
    assert all("Content Security Policy" in message for message in messages)


def test_the_page_works_in_a_frame_of_a_notebook(page: Page, pages: dict[str, Path], tmp_path: Path) -> None:
    inner = html.escape(pages["structured"].read_text(encoding="utf-8"))
    frame = f'<meta charset="utf-8"><iframe srcdoc="{inner}" sandbox="allow-scripts" width="900" height="420"></iframe>'
    (tmp_path / "notebook.html").write_text(frame, encoding="utf-8")
    page.driver.get((tmp_path / "notebook.html").as_uri())
    page.driver.switch_to.frame(0)
    try:
        page.wait("'ready' in document.documentElement.dataset")
        page.press("ArrowRight")
        assert page.place == "Step 1 of 20, act 2 of 3"
        assert page.run("return document.documentElement.scrollWidth") <= 900
    finally:
        page.driver.switch_to.default_content()


def test_a_hundred_thousand_acts_open_and_scrub(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "long.html"
    path.write_text(html_page(document(plain_episode("long", 100_000))), encoding="utf-8")
    page.open(path)
    page.press("End", "Shift+ArrowLeft")
    assert page.place == "Step 99,999 of 100,000"
    assert page.run("return document.querySelectorAll('*').length") < 1000
    script = """
        const slider = document.querySelector("#transport input");
        for (let i = 0; i < 50; i += 1) {
            slider.value = i * 1999;
            slider.dispatchEvent(new Event("input"));
            await new Promise(requestAnimationFrame);
        }
        return slider.value;
    """
    assert page.run(script) == str(49 * 1999)
    assert page.place == f"Step {49 * 1999 + 1:,} of 100,000"
