"use strict";
// Shows a terminal: live, or from a recording. xterm.js draws it; nothing of it becomes markup or a link.
(() => {
  const screen = document.getElementById("terminal");
  if (!screen || !window.Terminal) return;
  const say = (text) => { document.getElementById("terminal-status").textContent = text; };
  const nonce = screen.dataset.nonce;

  // The policy of this page allows style elements with its nonce, and styles that scripts set, but none in markup. xterm.js makes
  // style elements without a nonce, and sets colours as an attribute: both become what the policy allows.
  const create = document.createElement.bind(document);
  document.createElement = (name, ...more) => {
    const element = create(name, ...more);
    if (name.toLowerCase() === "style") element.nonce = nonce;
    return element;
  };
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name.toLowerCase() === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };

  const terminal = new window.Terminal({
    cols: 80,
    rows: 24,
    scrollback: 5000,
    convertEol: false,
    screenReaderMode: true,
    // A link of a program leads nowhere.
    linkHandler: { activate: () => {}, allowNonHttpProtocols: false },
    disableStdin: screen.dataset.kind !== "live",
  });
  terminal.open(screen);

  // Returns the size that fits the page, from the size of a character.
  const fitting = () => {
    const probe = create("span");
    probe.textContent = "W".repeat(50);
    probe.style.cssText = "position:absolute;visibility:hidden;white-space:pre";
    probe.style.fontFamily = terminal.options.fontFamily;
    probe.style.fontSize = terminal.options.fontSize + "px";
    screen.append(probe);
    const width = probe.getBoundingClientRect().width / 50;
    probe.remove();
    const columns = Math.floor((screen.clientWidth - 20) / (width || 9));
    return { columns: Math.max(20, Math.min(300, columns)), rows: 24 };
  };

  const post = (path, fields) => fetch(path, {
    method: "POST",
    body: new URLSearchParams(fields),
    credentials: "same-origin",
    redirect: "error",
  });

  const live = (form) => {
    const csrf = form.elements.csrf.value;
    const button = form.querySelector("button");
    let path = null;
    let waiting = "";
    let sending = false;
    // One request at a time, so that the input keeps its order.
    const send = async () => {
      if (sending) return;
      sending = true;
      while (path && waiting) {
        const input = waiting.slice(0, 4096);
        waiting = waiting.slice(input.length);
        try {
          const answer = await post(path, { csrf, input });
          if (!answer.ok) throw new Error(String(answer.status));
        } catch {
          path = null;
          say("The input did not arrive: the terminal has ended.");
        }
      }
      sending = false;
    };
    terminal.onData((data) => {
      if (!path) return;
      waiting = (waiting + data).slice(0, 1 << 20);
      send();
    });
    window.addEventListener("resize", () => {
      const { rows, columns } = fitting();
      if (!path || columns === terminal.cols) return;
      terminal.resize(columns, rows);
      post(path, { csrf, rows, columns }).catch(() => {});
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      say("Opening…");
      const { rows, columns } = fitting();
      terminal.reset();
      terminal.resize(columns, rows);
      const fields = { csrf, rows, columns };
      if (form.elements.paused.checked) fields.paused = "true";
      try {
        const answer = await post(form.action, fields);
        const key = answer.headers.get("cofferdam-terminal");
        if (!answer.ok || !key) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const reason = page.querySelector("[role=alert]");
          throw new Error(reason ? reason.textContent : "the daemon refused it");
        }
        path = "/terminals/" + encodeURIComponent(key);
        say("Open. Everything is recorded.");
        terminal.focus();
        const reader = answer.body.getReader();
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
          await new Promise((shown) => terminal.write(part.value, shown));
        }
        say("The terminal is closed.");
      } catch (error) {
        say("The terminal is closed: " + error.message);
      }
      path = null;
      waiting = "";
      button.disabled = false;
    });
  };

  // Plays a recording. A pause is cut to two seconds.
  const recording = (button, speed) => {
    let events = null;
    let playing = 0;
    const load = async () => {
      const answer = await fetch(screen.dataset.source, { credentials: "same-origin" });
      if (!answer.ok) throw new Error("the daemon refused it");
      return (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
    };
    const show = ([, kind, value, rows]) => {
      if (kind === "size") terminal.resize(Math.max(2, Math.min(500, value)), Math.max(1, Math.min(200, rows)));
      if (kind === "output") terminal.write(value);
    };
    button.addEventListener("click", async () => {
      const mine = ++playing;
      say("Loading…");
      try {
        events = events || await load();
      } catch (error) {
        say("The recording cannot be played: " + error.message);
        return;
      }
      terminal.reset();
      button.textContent = "Play again";
      say("Playing");
      let before = 0;
      for (const event of events) {
        const wait = Math.min(2000, (event[0] - before) / 1000) / Number(speed.value);
        before = event[0];
        if (wait >= 4) await new Promise((done) => setTimeout(done, wait));
        if (mine !== playing) return;
        show(event);
      }
      say("The end");
    });
  };

  if (screen.dataset.kind === "live") live(document.getElementById("terminal-form"));
  else recording(document.getElementById("play"), document.getElementById("speed"));
})();
