"""The page and the report in a real browser: what a person sees, and what those who do not look are told."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ring import REGIONS, round_of_the_token, scenario, start, update, write_crowd, write_ring

import spyker
from spyker.cli.main import main
from spyker.dashboard.http_server import DashboardServer
from spyker.dashboard.watched_run import EVENTS
from spyker.protocol.facts import RoundEnded
from spyker.records import RecordWriter

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium here: apt-get install chromium chromium-driver"),
]
SWITCHES = (
    "headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking", "disable-dev-shm-usage",
)  # fmt: skip
PATIENCE = 60.0  # seconds; a busy machine is no fault
HOME, END = "\ue011", "\ue010"  # keys, as WebDriver numbers them
NAUGHTY = "<img src=x onerror=window.hacked=1>"


class Browser:
    """Chromium, with words for what a person does."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for switch in SWITCHES:
            options.add_argument(f"--{switch}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_script_timeout(PATIENCE)
        self.size(1400, 900)

    def size(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def offline(self, cut: bool) -> None:
        self.driver.execute_cdp_cmd("Network.enable", {})
        conditions = {"offline": cut, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)

    def open(self, url: str, runs: int = 1) -> None:
        self.driver.get("about:blank")  # a page whose server has ended complains of that
        self.complaints()
        self.driver.get(url)
        self.until(f"document.body.dataset.ready === '{runs}'")

    def ask(self, code: str, *values: object) -> Any:
        return self.driver.execute_script(f"return ({code})", *values)

    def until(self, code: str) -> Any:
        """Wait until something is so."""
        ends = time.monotonic() + PATIENCE
        while not (found := self.ask(code)):
            assert time.monotonic() < ends, f"never: {code}"
            self.driver.execute_async_script("requestAnimationFrame(() => arguments[0]())")
        return found

    def go(self, t: float) -> None:
        """Move the slider to a time."""
        end = self.until("document.querySelector('.run').dataset.facts") and self.ask(
            "document.querySelector('.slide').dataset.end"
        )
        self.driver.execute_script(
            "const time = document.querySelector('.time'); time.value = arguments[0];"
            "time.dispatchEvent(new Event('input', { bubbles: true }))",
            round(t / float(end) * 10_000),
        )

    def press(self, key: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.TAG_NAME, "body").send_keys(key)

    def complaints(self) -> list[str]:
        """What the browser has complained of: scripts that were refused, errors, files that are not there."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = Browser()
    yield found
    found.driver.quit()


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with DashboardServer([write_ring(tmp_path_factory.mktemp("page") / "run")], "127.0.0.1", 0) as server:
        yield server.url


def tile(name: str) -> str:
    """What a tile says."""
    found = f"[...document.querySelectorAll('.tile')].find(e => e.firstChild.textContent === '{name}')"
    return f"{found}.lastChild.textContent"


def test_the_token_moves_on_the_map_when_the_facts_say_so(browser: Browser, ring: str) -> None:
    browser.open(ring)
    places = {}
    for t, where in ((0.5, "0"), (0.95, "0>1"), (1.5, "1"), (1.95, "1>2"), (2.5, "2"), (3.5, "0")):
        browser.go(t)
        browser.until(f"document.querySelector('.map').dataset.token === '{where}'")
        places[where] = browser.ask("document.querySelector('.token').getAttribute('transform')")
    assert len(set(places.values())) == 5, "each is another place"
    assert browser.ask("document.querySelectorAll('.server.holder').length") == 1
    browser.until("document.querySelector('.map').getAttribute('aria-label').includes('The token is at here')")
    browser.go(0.55)
    browser.until("Number(document.querySelector('.map').dataset.flying) === 2")
    assert browser.complaints() == []


def test_the_token_moves_while_the_run_is_played(browser: Browser, ring: str) -> None:
    browser.open(ring)
    browser.go(0.8)
    browser.until("document.querySelector('.map').dataset.token === '0'")
    browser.driver.execute_script(
        "const map = document.querySelector('.map'); window.seen = [];"
        "new MutationObserver(() => window.seen.at(-1) === map.dataset.token || window.seen.push(map.dataset.token))"
        ".observe(map, { attributes: true, attributeFilter: ['data-token'] })"
    )
    browser.press(" ")
    browser.until("window.seen.includes('1')")
    browser.press(" ")
    assert browser.ask("window.seen.slice(-3)")[-2:] == ["0>1", "1"]
    assert browser.ask("document.querySelector('.play').getAttribute('aria-label')") == "Play"


def test_the_slider_shows_the_state_at_that_time(browser: Browser, ring: str) -> None:
    browser.open(ring)
    for t, updates in ((2.55, 25), (0.35, 3), (3.75, 37)):
        browser.go(t)
        browser.until(f"{tile('updates')} === '{updates}'")
        browser.until(f"document.querySelector('.clock').textContent.startsWith('{t:.2f}')")
        ages = browser.ask("[...document.querySelectorAll('.server .age')].map(e => Number(e.textContent))")
        assert sum(ages) == updates, "in this run every update makes one server older by one"
        counted = "(document.querySelector('.columns').getAttribute('aria-label').match(/: \\d+/g) || [])"
        browser.until(f"{counted}.map(text => Number(text.slice(2))).reduce((a, b) => a + b, 0) === {updates}")


def test_who_jumps_back_can_go_on_from_there(browser: Browser, tmp_path: Path) -> None:
    """A long run, whose first and last moments are never in one window; its servers merge all the time."""
    folder = write_crowd(tmp_path / "run", 30_000, merges=True)
    with DashboardServer([folder], "127.0.0.1", 0) as server:
        browser.open(server.url)
        browser.until(f"Number({tile('updates')}.replaceAll(',', '')) > 10_000")  # what is finished is shown at its end
        for _ in range(3):
            browser.press(END)
            browser.until(f"Number({tile('updates')}.replaceAll(',', '')) > 10_000")
            browser.press(HOME)
            browser.until(f"Number({tile('updates')}.replaceAll(',', '')) < 1_000")
        browser.press(" ")
        browser.until("Number(document.querySelector('.clock').textContent.split(' ')[0]) > 0.2")
        assert browser.complaints() == []


def test_a_page_that_is_there_before_its_run_says_so_and_goes_live_with_it(browser: Browser, tmp_path: Path) -> None:
    with DashboardServer([tmp_path], "127.0.0.1", 0) as server:
        browser.open(server.url, runs=0)
        browser.until("document.getElementById('status').textContent.startsWith('No run yet')")
        browser.driver.execute_async_script("setTimeout(arguments[0], 1500)")  # the server has said something by then
        assert browser.ask("!document.getElementById('status').hidden")
        writer = RecordWriter(tmp_path / "run", scenario(), at_once=True)
        writer.write(0.0, start())
        for t, fact in round_of_the_token()[:20]:
            writer.write(t, fact)
        browser.until("document.body.dataset.ready === '1'")
        browser.until("Number(document.querySelector('.clock').textContent.split(' ')[0]) > 0.5")
        assert browser.ask("document.querySelector('.live-button').getAttribute('aria-pressed')") == "true"
        theme = browser.ask("getComputedStyle(document.body).backgroundColor")
        browser.press("d")  # once, though there was another set of buttons before
        browser.until(f"getComputedStyle(document.body).backgroundColor !== {theme!r}")
        writer.close({"finished": True})


def test_a_server_that_is_gone_is_not_asked_time_and_again(browser: Browser, tmp_path: Path) -> None:
    with DashboardServer([write_crowd(tmp_path / "run", 30_000)], "127.0.0.1", 0) as server:
        browser.open(server.url)
        browser.until(f"Number({tile('updates')}.replaceAll(',', '')) > 10_000")
        browser.driver.execute_script(
            "window.asked = 0; const ask = window.fetch;"
            "window.fetch = (...what) => { window.asked += String(what[0]).includes('window'); return ask(...what) }"
        )
    browser.press(HOME)
    browser.until("document.body.classList.contains('lost') && window.asked > 0")
    browser.driver.execute_async_script("setTimeout(arguments[0], 2500)")
    assert browser.ask("window.asked") <= 4


def test_a_student_steps_from_event_to_event(browser: Browser, ring: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(ring)
    browser.go(0.95)
    browser.until("document.querySelector('.map').dataset.token === '0>1'")
    told = []
    for _ in range(3):
        before = browser.ask("document.querySelector('#announcer').textContent")
        browser.press(Keys.ARROW_RIGHT)
        said = "document.querySelector('#announcer').textContent"
        told.append(browser.until(f"{said} !== {before!r} && {said}"))
    assert [text.split(": ")[1].split(" (")[0] for text in told] == [
        "there applied client 6’s update",
        "there received the token for exchange 2",
        "accuracy 0.3000, 0.200 to 0.400 after 10 updates",
    ]
    browser.press(Keys.ARROW_LEFT)
    browser.press(Keys.ARROW_LEFT)
    browser.until("document.querySelector('#announcer').textContent.startsWith('undone: there received the token')")
    browser.until("document.querySelector('.log li:not([hidden]) span').textContent.includes('client 6’s update')")


def test_the_updates_of_a_round_are_one_line(browser: Browser, tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", scenario(), at_once=True)
    writer.write(0.0, start())
    for client in range(4):
        writer.write(1.0, update(1, 4 + client, client + 1.0), 1)
    writer.write(1.0, RoundEnded(1, 1))
    writer.write(2.0, update(1, 4, 5.0), 1)
    writer.close({"finished": True})
    with DashboardServer([tmp_path / "run"], "127.0.0.1", 0) as server:
        browser.open(server.url)
        said = "[...document.querySelectorAll('.log li:not([hidden]) span')].map(e => e.textContent)"
        browser.until(f"{said}.includes('there took 4 updates')")
        assert sum("’s update" in line for line in browser.ask(said)) == 1, "and one by itself"


def test_a_live_runs_curve_grows_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", scenario(), at_once=True)
    writer.write(0.0, start())
    facts = round_of_the_token()
    with DashboardServer([tmp_path / "run"], "127.0.0.1", 0) as server:
        browser.open(server.url)
        browser.driver.execute_script("window.here = true")
        curve = "document.querySelector('.chart canvas').getAttribute('aria-label')"
        for t, fact in facts[:20]:
            writer.write(t, fact)
        first = browser.until(f"{curve}.includes('mean 0.300') && {curve}")
        browser.until("Number(document.querySelector('.clock').textContent.split(' ')[0]) > 0.5")
        for t, fact in facts[20:]:
            writer.write(t, fact)
        writer.close({"finished": True})
        browser.until(f"{curve}.includes('mean 0.500') && {curve} !== {first!r}")
        browser.until("document.querySelector('.badge').textContent === 'finished'")
        browser.until("document.querySelector('.map').dataset.token === '0'")
        assert browser.ask("window.here"), "it is the same page"
        assert browser.complaints() == []


def test_a_hundred_thousand_facts_arrive_in_pieces_and_within_bounds(browser: Browser, tmp_path: Path) -> None:
    folder = write_crowd(tmp_path / "run", 100_000)
    with DashboardServer([folder], "127.0.0.1", 0) as server:
        browser.open(server.url)
        browser.until("document.querySelector('.run').dataset.facts === '100000'")
        browser.go(50.0)
        browser.until("document.querySelector('.map').dataset.token === '2'")
        assert browser.ask("document.querySelectorAll('*').length") < 1500
        sizes = browser.ask("performance.getEntriesByType('resource').map(e => e.decodedBodySize)")
        assert max(sizes) < 2_500_000, "never everything at once"
        window = "await (await fetch('api/runs/0/window?from=0&to=90')).json()"
        events = browser.driver.execute_async_script(f"(async done => done(({window}).events.length))(arguments[0])")
        assert events <= 2 * EVENTS


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    regions = (NAUGHTY, "</script><script>window.hacked=1</script>", "yonder")
    folder = write_ring(tmp_path / "run", regions=regions, title=NAUGHTY, task="</textarea>" + NAUGHTY)
    assert main(["report", str(folder), "--out", str(tmp_path / "report.html")]) == 0
    with DashboardServer([folder], "127.0.0.1", 0) as server:
        for url in (server.url, (tmp_path / "report.html").as_uri()):
            browser.open(url)
            browser.go(1.5)
            browser.until("document.querySelector('.log li:not([hidden])')")
            assert browser.ask("window.hacked") is None
            assert browser.ask("document.querySelectorAll('img').length") == 0
            assert NAUGHTY in browser.ask("document.querySelector('h2 + .badge, .run-head').parentNode.textContent")
            assert browser.ask("document.querySelector('.servers tbody th').textContent") == NAUGHTY
            assert browser.complaints() == []


def test_the_report_opens_from_disk_without_a_network(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(write_ring(tmp_path / "run")), "--out", str(out), "--window", "0.5-2.5"]) == 0
    browser.offline(True)
    try:
        browser.open(out.as_uri())
        for t, where in ((0.95, "0>1"), (1.5, "1"), (2.3, "2"), (3.8, "0")):
            browser.go(t)
            browser.until(f"document.querySelector('.map').dataset.token === '{where}'")
        assert browser.ask("[...document.querySelectorAll('.prose td')].some(e => e.textContent.includes('0.500'))")
        inked = (
            "[...document.querySelectorAll('.chart canvas')].every(c => "
            "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))"
        )
        browser.until(inked)
        assert browser.complaints() == []
    finally:
        browser.offline(False)


def test_several_runs_stand_side_by_side_and_in_step(browser: Browser, tmp_path: Path) -> None:
    folders = [write_ring(tmp_path / "a"), write_ring(tmp_path / "b", title="Stride", algorithm="stride")]
    with DashboardServer(folders, "127.0.0.1", 0) as server:
        browser.open(server.url, runs=2)
        browser.go(1.5)
        browser.until("[...document.querySelectorAll('.map')].every(map => map.dataset.token === '1')")
        assert browser.ask("[...document.querySelectorAll('h2')].map(e => e.textContent)") == ["Spyker", "Stride"]
        tops = browser.ask("[...document.querySelectorAll('.map')].map(e => e.getBoundingClientRect().top)")
        assert tops[0] == tops[1], "side by side"


OVERLAPS = """(() => {
  const boxes = (query) => [...document.querySelectorAll(query)].map((e) => [e.textContent, e.getBoundingClientRect()]);
  return boxes(".latencies text").flatMap(([ms, a]) => boxes(".region, .more").filter(([, b]) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).map(([name]) => [ms, name]));
})()"""


@pytest.mark.parametrize("runs", [1, 2])
def test_latencies_do_not_cover_the_names_of_regions(browser: Browser, tmp_path: Path, runs: int) -> None:
    folders = [tmp_path / str(i) for i in range(runs)]
    for folder, algorithm in zip(folders, ("stride", "spyker"), strict=False):
        spyker.run(task="quadratic", clients=8, duration=1, algorithm=algorithm, out=folder, progress=False)
    try:
        with DashboardServer(folders, "127.0.0.1", 0) as server:
            for width in (1400, 1100, 900):
                browser.size(width, 900)
                browser.open(server.url, runs=runs)
                assert browser.ask("document.querySelectorAll('.latencies text').length") == 6 * runs
                assert browser.ask(OVERLAPS) == []
    finally:
        browser.size(1400, 900)


def test_it_fits_a_phone(browser: Browser, ring: str) -> None:
    browser.size(360, 740)
    try:
        browser.open(ring)
        browser.go(1.5)
        assert browser.ask("document.documentElement.scrollWidth") <= 360
        small = browser.ask(
            "[...document.querySelectorAll('.transport button, .transport select')].filter(e => !e.hidden)"
            ".filter(e => e.getBoundingClientRect().height < 36).length"
        )
        assert small == 0, "what fingers press is large enough"
    finally:
        browser.size(1400, 900)


def test_everything_has_a_name_and_the_colours_can_be_switched(browser: Browser, ring: str) -> None:
    browser.open(ring)
    nameless = browser.ask(
        "[...document.querySelectorAll('button, input, select, [role=img], canvas[tabindex]')]"
        ".filter(e => !(e.getAttribute('aria-label') || e.textContent.trim())).map(e => e.outerHTML)"
    )
    assert nameless == []
    ground = "getComputedStyle(document.body).backgroundColor"
    before = browser.ask(ground)
    browser.press("d")
    browser.until(f"{ground} !== {before!r}")
    browser.press("d")
    browser.until(f"{ground} === {before!r}")
    assert {*REGIONS} <= set(browser.ask("[...document.querySelectorAll('.region')].map(e => e.textContent)"))
