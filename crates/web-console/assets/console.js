// Refreshes parts of a page when the daemon says that something has changed, counts down, and takes keys. Every page works without it.
"use strict";

(() => {
  const events = document.body.dataset.events;
  const connection = document.getElementById("connection");
  let source = null;
  let wasOpen = false;
  let refreshing = false;
  let wanted = false;

  const say = (text) => {
    if (connection && connection.textContent !== text) connection.textContent = text;
  };

  // A part in which a person types or has a button in hand is not replaced.
  const isInUse = (part) =>
    part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select, button");

  const replaceParts = (fresh) => {
    for (const part of document.querySelectorAll("[data-live][id]")) {
      const next = fresh.getElementById(part.id);
      if (!next || isInUse(part) || next.isEqualNode(part)) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const own = document.importNode(next, true);
      part.replaceWith(own);
      if (focused) {
        const again = [...own.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === focused);
        if (again) again.focus();
      }
    }
    const form = document.getElementById("decide");
    if (form && !fresh.getElementById("decide")) {
      for (const button of form.querySelectorAll("button")) button.disabled = true;
      say("This was decided elsewhere: see above.");
    }
    count();
  };

  const refresh = async () => {
    if (refreshing) {
      wanted = true;
      return;
    }
    refreshing = true;
    try {
      const answer = await fetch(location.href, {
        headers: { "cofferdam-refresh": "1" },
        credentials: "same-origin",
        redirect: "error",
        cache: "no-store",
      });
      if (answer.status === 401) {
        location.reload();
        return;
      }
      if (answer.ok) replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The next event asks again.
    }
    // At most one refresh in a second and a half.
    setTimeout(() => {
      refreshing = false;
      if (wanted) {
        wanted = false;
        refresh();
      }
    }, 1500);
  };

  const watch = () => {
    if (!events || source || document.hidden) return;
    source = new EventSource(events);
    source.addEventListener("hello", () => {
      say("");
      // Changes between two connections were missed.
      if (wasOpen) refresh();
      wasOpen = true;
    });
    source.addEventListener("change", refresh);
    source.addEventListener("error", () => {
      say("The connection to the daemon is lost. Trying again…");
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        // A session that has ended answers with a refusal, which ends the stream for good. So may a daemon that starts.
        setTimeout(() => {
          refresh();
          watch();
        }, 3000);
      }
    });
  };

  // A hidden page needs no connection; a browser opens only a few to one server.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) {
      source.close();
      source = null;
    } else {
      watch();
    }
  });

  const count = () => {
    for (const left of document.querySelectorAll("[data-until]")) {
      const seconds = Math.max(0, Math.floor((Number(left.dataset.until) - Date.now()) / 1000));
      const text = `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
      if (left.textContent !== text) left.textContent = text;
    }
  };

  // The first press takes the button in hand, the second presses it. One stray key decides nothing.
  const press = (value) => {
    const button = document.querySelector(`#decide button[value="${value}"]`);
    if (!button || button.disabled) return;
    if (document.activeElement === button) {
      button.click();
    } else {
      button.focus();
      say(`Press the key again, or Enter, to ${value}. Escape leaves it.`);
    }
  };

  const remember = () => {
    const choices = [...document.querySelectorAll('#decide input[name="remember"]')];
    const at = choices.findIndex((choice) => choice.checked);
    const next = choices[(at + 1) % choices.length];
    if (!next) return;
    next.checked = true;
    say(`An approval counts for ${next.parentElement.textContent.trim()}`);
  };

  const move = (step) => {
    const links = [...document.querySelectorAll(".queue > li > a")];
    if (links.length > 0) {
      const at = links.indexOf(document.activeElement);
      const next = at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step;
      if (links[next]) links[next].focus();
      return;
    }
    const link = document.querySelector(step > 0 ? 'a[rel="next"]' : 'a[rel="prev"]');
    if (link) link.click();
  };

  const keys = {
    a: () => press("approve"),
    d: () => press("deny"),
    r: remember,
    j: () => move(1),
    k: () => move(-1),
    Escape: () => {
      if (document.activeElement && document.activeElement.matches("button")) document.activeElement.blur();
      say("");
    },
  };

  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    const isText = event.target.matches("textarea, input:not([type=radio]):not([type=checkbox]), select");
    if (isText || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });

  // A form is sent once.
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "1";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });

  setInterval(count, 1000);
  watch();
})();
