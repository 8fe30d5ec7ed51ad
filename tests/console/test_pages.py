"""The other pages: they show what the daemon has, work without JavaScript, and are accessible."""

import os
import re
from pathlib import Path

import pytest
from conftest import SignIn
from daemon import Daemon
from playwright.sync_api import Browser, Page, expect

SIZES = {"desktop": (1280, 800), "tablet": (820, 1180), "phone": (390, 844)}
PATIENCE = 30_000


def go(page: Page, path: str) -> Page:
    page.goto("/".join(page.url.split("/")[:3]) + path)
    return page


@pytest.fixture(scope="module")
def worked(daemon: Daemon) -> dict[str, str]:
    """Paths of the console, of a run that has something on each of its pages."""
    run = daemon.run("review", "--label", "team=a", on="overlay")
    daemon.coffer("approval", "approve", daemon.ask(run, "b.txt"))
    call = daemon.json("call", "exec", run, "--", "cat", "a.txt")["callId"]
    daemon.coffer("call", "exec", run, "--", "sudo", "ls", codes=tuple(range(1, 256)))
    daemon.coffer("run", "fork", run)
    approval = daemon.ask(run)
    return {
        "overview": "/overview",
        "approvals": "/approvals",
        "approval": f"/approvals/{approval}",
        "history": "/approvals/history",
        "runs": "/runs",
        "run": f"/runs/{run}",
        "stop": f"/runs/{run}/stop",
        "files": f"/runs/{run}/files",
        "text": f"/runs/{run}/files?kind=text&path=a.txt",
        "changes": f"/runs/{run}/changes",
        "connections": f"/runs/{run}/connections",
        "recordings": f"/runs/{run}/recordings",
        "terminal": f"/runs/{run}/terminal",
        "calls": "/calls",
        "call": f"/calls/{call}",
        "audit": "/audit",
        "record": "/audit/1",
        "alerts": "/alerts",
        "policy": "/policy?profile=review",
        "problem": "/nothing",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(worked: dict[str, str], sign_in: SignIn, shots: Path, scheme: str) -> None:
    axe = Path(os.environ["COFFERDAM_TEST_AXE"]).read_text()
    found = []
    for name, size in SIZES.items():
        page = sign_in(scheme=scheme, size=size)
        for title, path in worked.items():
            go(page, path)
            expect(page.locator("h1")).to_have_count(1)
            page.screenshot(path=shots / f"{title}-{scheme}-{name}.png", full_page=True)
            width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if width > 0:
                found.append(f"{title} is {width} px too wide on a {name}")
            page.evaluate(axe)
            for violation in page.evaluate("axe.run()")["violations"]:
                nodes = [node["html"][:200] for node in violation["nodes"][:3]]
                found.append(f"{title}, {scheme}, {name}: {violation['id']}: {nodes}")
    assert not found, "\n".join(found)


def test_pages_work_without_javascript(browser: Browser, daemon: Daemon, worked: dict[str, str]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(daemon.link())
    page.get_by_role("button", name="Sign in").click()
    for name, path in worked.items():
        go(page, path)
        expect(page.locator("h1")).to_have_count(1)
        assert page.locator("main").inner_text(), name
    context.close()


def test_a_run_is_paused_resumed_and_stopped(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    state = lambda: daemon.json("run", "show", run)["run"]["state"]  # noqa: E731
    page = go(sign_in(), f"/runs/{run}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_have_count(1, timeout=PATIENCE)
    assert state() == "PAUSED"
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_have_count(1, timeout=PATIENCE)
    assert state() == "READY"
    page.get_by_role("link", name="Stop…").click()
    assert state() == "READY", "it asks first"
    page.get_by_role("button", name="Stop the run").click()
    expect(page.locator(".state").first).to_have_text(re.compile("stopp"), timeout=PATIENCE)
    assert state() == "STOPPED"


def test_a_call_says_why_it_was_decided_so(worked: dict[str, str], sign_in: SignIn) -> None:
    page = go(sign_in(), worked["call"])
    expect(page.locator("main")).to_contain_text("The policy in force now says allow")
    expect(page.locator("main")).to_contain_text("two")
    expect(page.locator("main")).to_contain_text("@project")


def test_the_log_is_live_and_filtered(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    page = go(sign_in(), f"/audit?run={run}&kind=call_receipt")
    expect(page.locator("#records")).to_contain_text("No record matches")
    daemon.coffer("call", "read", run, "a.txt")
    expect(page.locator("#records td", has_text="call_receipt")).to_have_count(1, timeout=PATIENCE)


def test_a_terminal_is_live_and_its_recording_is_played_without_the_input(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    page = go(sign_in(), f"/runs/{run}/terminal")
    page.get_by_role("button", name="Open a terminal").click()
    expect(page.locator("#terminal-status")).to_contain_text("Open.", timeout=PATIENCE)
    page.locator("#terminal textarea").focus()
    page.keyboard.type('stty -echo; echo no-""echo\n')
    expect(page.locator(".xterm-rows")).to_contain_text("no-echo", timeout=PATIENCE)
    page.keyboard.type("read -r secret; echo length ${#secret}\nswordfish\n")
    expect(page.locator(".xterm-rows")).to_contain_text("length 9", timeout=PATIENCE)
    page.keyboard.type("exit\n")
    expect(page.locator("#terminal-status")).to_contain_text("closed", timeout=PATIENCE)

    go(page, f"/runs/{run}/recordings")
    page.get_by_role("link", name="Play", exact=False).first.click()
    page.get_by_label("Speed").select_option("8")
    page.get_by_role("button", name="Play").click()
    expect(page.locator("#terminal-status")).to_have_text("The end", timeout=PATIENCE)
    expect(page.locator(".xterm-rows")).to_contain_text("length 9")
    page.get_by_role("link", name="As text").click()
    expect(page.locator("pre")).to_contain_text("length 9")
    assert "swordfish" not in (page.locator("body").text_content() or "")
    kinds = daemon.coffer("audit", "query", "--run", run, "--kind", "recording_read")
    assert kinds.count("recording_read") >= 2
