// Talks to the authenticator of this browser, and subscribes it to notices. What a person signs was made by the daemon.
"use strict";

(() => {
  const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  const hex = (buffer) =>
    Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");

  const say = (text) => {
    const state = document.getElementById("passkey-state");
    if (state) state.textContent = text;
  };

  const ask = async (path, data) => {
    const answer = await fetch(path, {
      method: "POST",
      body: new URLSearchParams(data),
      credentials: "same-origin",
      redirect: "error",
      cache: "no-store",
    });
    if (!answer.ok) {
      const isPlain = (answer.headers.get("content-type") ?? "").startsWith("text/plain");
      throw new Error(isPlain ? await answer.text() : "The daemon refused it: load the page again.");
    }
    return answer.json();
  };

  const known = (ids) => ids.map((id) => ({ type: "public-key", id: bytes(id) }));

  const sign = async (challenge, rpId, ids) => {
    const signed = await navigator.credentials.get({
      publicKey: {
        challenge: bytes(challenge),
        rpId,
        allowCredentials: known(ids),
        userVerification: "required",
        timeout: 120000,
      },
    });
    return {
      credential_id: hex(signed.rawId),
      authenticator_data: hex(signed.response.authenticatorData),
      client_data_json: hex(signed.response.clientDataJSON),
      signature: hex(signed.response.signature),
    };
  };

  const fill = (form, fields) => {
    for (const [name, value] of Object.entries(fields)) {
      let field = [...form.elements].find((one) => one.name === name && one.type === "hidden");
      if (!field) {
        field = document.createElement("input");
        field.type = "hidden";
        field.name = name;
        form.append(field);
      }
      field.value = value;
    }
  };

  const consent = async (form) => {
    const data = new FormData(form);
    data.set("decision", "approve");
    const id = form.dataset.approval;
    const asked = await ask(`/passkeys/consent/${encodeURIComponent(id)}`, data);
    fill(form, { ...(await sign(asked.challenge, asked.rp_id, asked.ids)), decision: "approve" });
    form.submit();
  };

  const register = async (form) => {
    const begun = await ask("/passkeys/begin", new FormData(form));
    if (begun.proof_challenge) {
      say("First sign with a passkey that you have.");
      fill(form, await sign(begun.proof_challenge, begun.rp_id, begun.exclude));
    }
    say("Make the new passkey.");
    const made = await navigator.credentials.create({
      publicKey: {
        challenge: bytes(begun.challenge),
        rp: { id: begun.rp_id, name: "Cofferdam" },
        user: { id: bytes(begun.user_id), name: begun.user_name, displayName: begun.user_name },
        pubKeyCredParams: [
          { type: "public-key", alg: -7 },
          { type: "public-key", alg: -8 },
        ],
        authenticatorSelection: { userVerification: "required", residentKey: "preferred" },
        excludeCredentials: known(begun.exclude),
        attestation: "none",
        timeout: 300000,
      },
    });
    fill(form, {
      new_authenticator_data: hex(made.response.getAuthenticatorData()),
      new_client_data_json: hex(made.response.clientDataJSON),
    });
    form.submit();
  };

  const subscribe = async (form) => {
    if ((await Notification.requestPermission()) !== "granted") throw new Error("This browser may not show notices.");
    await navigator.serviceWorker.register("/worker.js");
    const worker = await navigator.serviceWorker.ready;
    const made = await worker.pushManager.subscribe({
      userVisibleOnly: true,
      applicationServerKey: bytes(form.dataset.key),
    });
    fill(form, {
      endpoint: made.endpoint,
      p256dh: hex(made.getKey("p256dh")),
      auth: hex(made.getKey("auth")),
    });
    form.submit();
  };

  // Before the script that has each form sent once.
  document.addEventListener(
    "submit",
    (event) => {
      const form = event.target;
      const act = { register, subscribe }[form.id] ?? (event.submitter?.dataset.sign ? consent : null);
      if (!act) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      const button = event.submitter;
      if (button) button.disabled = true;
      say("Waiting for your device…");
      act(form).catch((error) => {
        if (button) button.disabled = false;
        say(error instanceof DOMException ? "Your device did not do it, or its time was over. Try again." : error.message);
      });
    },
    { capture: true },
  );
})();
