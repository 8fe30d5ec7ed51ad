"""Approvals in a browser: each decision takes effect, and is taken once."""

import concurrent.futures
import contextlib
import re
import time

from conftest import SignIn
from daemon import APPROVER, AUDITOR, OTHER_APPROVER, Daemon
from playwright.sync_api import TimeoutError, expect

#: How long a change may take to arrive.
PATIENCE = 30_000


def wait_for(daemon: Daemon, approval: str, state: str) -> None:
    until = time.monotonic() + 30
    while daemon.state(approval) != state:
        assert time.monotonic() < until, f"{approval} is {daemon.state(approval)}, not {state}"
        time.sleep(0.1)


def test_an_approved_edit_lands(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    page = sign_in(APPROVER)
    expect(page.get_by_role("heading", level=1)).to_have_text("Approvals")
    approval = daemon.ask(run, content="one\nTWO\nthree\n")
    # The open page shows it by itself.
    page.locator(f"a[href='/approvals/{approval}']").click(timeout=PATIENCE)
    expect(page.locator("main")).to_contain_text("TWO")
    page.get_by_role("button", name="Approve", exact=True).click()
    wait_for(daemon, approval, "APPROVED")
    until = time.monotonic() + 30
    while (daemon.directory(run) / "a.txt").read_text() != "one\nTWO\nthree\n":
        assert time.monotonic() < until
        time.sleep(0.1)
    expect(page.locator("#state")).to_contain_text(re.compile("approved", re.I), timeout=PATIENCE)


def test_a_denied_edit_does_not_land_and_the_comment_is_on_record(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    approval = daemon.ask(run)
    page = sign_in(APPROVER)
    page.goto(page.url + f"/{approval}")
    page.locator("#comment").fill("not <b>this</b> one")
    page.get_by_role("button", name="Deny", exact=True).click()
    wait_for(daemon, approval, "DENIED")
    assert (daemon.directory(run) / "a.txt").read_text() == "one\ntwo\nthree\n"
    shown = daemon.json("approval", "show", approval)
    assert shown.get("approval", shown)["comment"] == "not <b>this</b> one"
    page.goto(page.url.split("?")[0])
    expect(page.locator("main b", has_text="this")).to_have_count(0)


def test_a_request_that_expires_can_no_longer_be_decided(daemon: Daemon, sign_in: SignIn) -> None:
    approval = daemon.ask(daemon.run("hasty"))
    page = sign_in(APPROVER)
    page.goto(page.url + f"/{approval}")
    wait_for(daemon, approval, "EXPIRED")
    expect(page.locator("#state")).to_contain_text(re.compile("expired", re.I), timeout=PATIENCE)
    page.reload()
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)


def test_two_reviewers_at_once_decide_once(daemon: Daemon, sign_in: SignIn) -> None:
    approval = daemon.ask(daemon.run())
    first, second = sign_in(APPROVER), sign_in(OTHER_APPROVER)
    for page in (first, second):
        page.goto(page.url + f"/{approval}")
    # The second one's browser hears of nothing before it decides.
    second.context.set_offline(True)
    first.get_by_role("button", name="Approve", exact=True).click()
    wait_for(daemon, approval, "APPROVED")
    second.context.set_offline(False)
    # The page may have heard of it by now, and then lets nobody press the button.
    with contextlib.suppress(TimeoutError):
        second.get_by_role("button", name="Deny", exact=True).click(timeout=2_000)
    expect(second.locator("main")).to_contain_text(f"uid:{APPROVER}", timeout=PATIENCE)
    assert daemon.state(approval) == "APPROVED"


def test_an_auditor_decides_nothing(daemon: Daemon, sign_in: SignIn) -> None:
    approval = daemon.ask(daemon.run())
    page = sign_in(APPROVER)
    page.goto(page.url + f"/{approval}")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(1)
    refused = daemon.run_coffer("console", uid=AUDITOR, codes=tuple(range(256)))
    if refused.returncode == 0:
        auditor = page.context.browser.new_page()  # type: ignore[union-attr]
        auditor.goto(refused.stdout.splitlines()[0])
        auditor.get_by_role("button", name="Sign in").click()
        auditor.goto(page.url)
        expect(auditor.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        auditor.close()
    daemon.coffer("approval", "deny", approval)


def test_five_hundred_that_wait_are_paged(daemon: Daemon, sign_in: SignIn) -> None:
    # One run has at most 64 calls that wait.
    runs = [daemon.run("crowd") for _ in range(10)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = list(pool.map(lambda number: daemon.ask(runs[number % 10], f"f{number}.txt", f"{number}\n"), range(500)))
    page = sign_in(APPROVER)
    began = time.monotonic()
    page.reload()
    expect(page.locator("#queue h2")).to_contain_text(re.compile("5[0-9][0-9] requests wait"), timeout=PATIENCE)
    assert time.monotonic() - began < 20, "the page of 500 is slow"
    seen = set()
    for _ in range(100):
        links = page.locator("#queue a[href^='/approvals/']").evaluate_all("all => all.map(a => a.getAttribute('href'))")
        assert 0 < len(links) <= 100, "a page has a bound"
        seen.update(links)
        following = page.locator("#queue a[rel=next]")
        if not following.count():
            break
        page.goto("/".join(page.url.split("/")[:3]) + (following.first.get_attribute("href") or ""))
    assert {f"/approvals/{approval}" for approval in asked} <= seen
    for run in runs:
        daemon.coffer("run", "stop", run)


def test_an_open_page_goes_on_after_the_daemon_restarts(daemon: Daemon, sign_in: SignIn) -> None:
    run = daemon.run()
    page = sign_in(APPROVER)
    expect(page.get_by_role("heading", level=1)).to_have_text("Approvals")
    daemon.stop()
    daemon.launch()
    approval = daemon.ask(run)
    page.locator(f"a[href='/approvals/{approval}']").wait_for(timeout=2 * PATIENCE)
    daemon.coffer("approval", "deny", approval)
