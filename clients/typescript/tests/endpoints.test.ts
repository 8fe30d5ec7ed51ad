/** The same API over a network: TLS with certificates or tokens, and in the clear on this host alone. */

import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { inspect } from "node:util";
import {
  AuthenticationFailed,
  CertificateRefused,
  Client,
  type Connection,
  DaemonUnreachable,
  Denied,
  InfrastructureError,
  InvalidArgument,
  Sandbox,
} from "@cofferdam/sdk";
import { coffer, Daemon } from "./daemon.js";
import { collected } from "./waiting.js";

const ACCESS = ["access: [{ certificate: ci, roles: [orchestrator] }]"];

const place = mkdtempSync("/var/tmp/cofferdam-tls-");
const certificates = join(place, "tls");
const authority = join(certificates, "server", "ca.pem");
const directory = join(certificates, "clients", "ci");
coffer("tls", "init", certificates, "--client", "ci", "--client", "other");
const server = join(certificates, "server");
const identity = `certificate: ${server}/cert.pem, key: ${server}/key.pem, client_ca: ${server}/ca.pem`;
// On a busy machine a handshake can take longer than it may by default.
const tls = `tls: { ${identity} }, handshake_timeout: 60s`;

let secured: Daemon;
let token: string;
let endpoint: string;

before(async () => {
  secured = await Daemon.start({ config: ACCESS, tcp: `address: '127.0.0.1:0', ${tls}, tokens: {}` });
  token = secured.coffer("token", "create", "ci", "--role", "orchestrator");
  endpoint = `https://localhost:${secured.port}`;
});
after(async () => {
  await secured[Symbol.asyncDispose]();
  rmSync(place, { recursive: true });
});
afterEach(() => {
  for (const name of ["COFFERDAM_ENDPOINT", "COFFERDAM_TLS", "COFFERDAM_TOKEN"]) {
    delete process.env[name];
  }
});

async function works(connection: Connection): Promise<void> {
  await using sandbox = await Sandbox.create({ profile: "harness", ...connection });
  await sandbox.files.write("a.txt", "hi");
  assert.equal((await sandbox.commands.run(["cat", "a.txt"])).stdout, "hi");
  const handle = await sandbox.commands.run(["cat"], { background: true, stdinOpen: true });
  await handle.sendStdin("there", { close: true });
  assert.deepEqual(
    (await collected(handle)).map((piece) => piece.text),
    ["there"],
  );
}

async function refuses(connection: Connection, ...kinds: (abstract new (...args: never[]) => Error)[]): Promise<void> {
  await assert.rejects(Sandbox.create({ profile: "open", ...connection }), (error) => {
    assert(
      kinds.some((kind) => error instanceof kind),
      String(error),
    );
    return true;
  });
}

test("the certificate has the name that the client was told", async () => {
  const given = { endpoint: `https://127.0.0.1:${secured.port}`, token, tls: { ca: authority } };
  await using told = new Client({ ...given, serverName: "localhost" });
  await told.runs.listRuns({});
  await using mistaken = new Client({ ...given, serverName: "other.example.org" });
  await assert.rejects(mistaken.runs.listRuns({}), DaemonUnreachable);
});

test("a client certificate is enough, and so is a token", async () => {
  await works({ endpoint, tls: directory });
  const files = { ca: authority, cert: join(directory, "cert.pem"), key: join(directory, "key.pem") };
  await works({ endpoint: `https://127.0.0.1:${secured.port}/`, tls: files });
  await works({ endpoint, tls: { ca: authority }, token });
});

test("the environment says it all", async () => {
  process.env["COFFERDAM_ENDPOINT"] = endpoint;
  process.env["COFFERDAM_TLS"] = directory;
  await works({});
  // A directory with an authority alone, and a token.
  const alone = join(place, "alone");
  mkdirSync(alone);
  copyFileSync(authority, join(alone, "ca.pem"));
  process.env["COFFERDAM_TLS"] = alone;
  process.env["COFFERDAM_TOKEN"] = token;
  await works({});
});

test("in the clear a token is needed", async () => {
  await using plain = await Daemon.start({ tcp: "address: '127.0.0.1:0', plaintext: true, tokens: {}" });
  const shown = plain.coffer("token", "create", "ci", "--role", "orchestrator");
  for (const host of ["127.0.0.1", "localhost"]) {
    await works({ endpoint: `http://${host}:${plain.port}`, token: shown });
  }
  await refuses({ endpoint: `http://localhost:${plain.port}` }, AuthenticationFailed, Denied);
});

test("a client without a right has none", async () => {
  const trusts = { endpoint, tls: { ca: authority } };
  await refuses(trusts, AuthenticationFailed, Denied);
  const unknown = { ...trusts, token: `cft_${"A".repeat(43)}` };
  await refuses(unknown, AuthenticationFailed, Denied);
  await assert.rejects(Sandbox.create({ profile: "open", ...unknown }), { hint: /COFFERDAM_TOKEN/ });
  await refuses({ endpoint, tls: join(certificates, "clients", "other") }, AuthenticationFailed, Denied);
  const auditor = secured.coffer("token", "create", "auditor", "--role", "auditor");
  await using client = new Client({ ...trusts, token: auditor });
  assert((await client.audit.verifyLog({})).intact);
  await refuses({ client }, Denied);
});

test("a daemon that is another is not trusted", async () => {
  const others = join(place, "others");
  coffer("tls", "init", others, "--client", "ci");
  const begun = Date.now();
  await refuses({ endpoint, tls: join(others, "clients", "ci") }, DaemonUnreachable);
  await refuses({ endpoint }, DaemonUnreachable);
  await refuses({ endpoint: endpoint.replace("https", "http") }, DaemonUnreachable);
  // Less than the patience of a client.
  assert(Date.now() - begun < 25_000);
});

test("a daemon that requires a certificate is named as the one that closes the connection", async () => {
  await using daemon = await Daemon.start({ config: ACCESS, tcp: `address: '127.0.0.1:0', ${tls}` });
  const without = { endpoint: `https://localhost:${daemon.port}`, tls: { ca: authority } };
  await assert.rejects(Sandbox.create({ profile: "open", ...without }), (error) => {
    assert(error instanceof CertificateRefused && !(error instanceof InfrastructureError), String(error));
    assert.match(error.message, /it requires a client certificate/);
    assert.match(error.hint, /COFFERDAM_TLS/);
    return true;
  });
});

test("a daemon that is killed is found again", async () => {
  await using daemon = await Daemon.start({ config: ACCESS, tcp: `address: '127.0.0.1:${await freePort()}', ${tls}` });
  const at = `https://localhost:${daemon.port}`;
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: at, tls: directory });
  const script = "echo a; read line; echo $line";
  const handle = await sandbox.commands.run(script, { background: true, stdinOpen: true });
  await using pieces = handle[Symbol.asyncIterator]();
  assert.equal((await pieces.next()).value?.text, "a\n");
  await daemon.end("SIGKILL");
  await daemon.launch();
  await handle.sendStdin("b\n");
  assert.equal((await pieces.next()).value?.text, "b\n");
  assert.equal((await handle.wait()).stdout, "a\nb\n");
});

/** One below those that outgoing connections are given: none of them takes it while the daemon does not listen. */
async function freePort(): Promise<number> {
  const lowest = Number.parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10);
  for (;;) {
    const port = randomInt(1024, lowest);
    const listener = createServer().listen(port, "127.0.0.1");
    try {
      await once(listener, "listening");
    } catch {
      continue;
    }
    await new Promise((resolve) => listener.close(resolve));
    return port;
  }
}

describe("an endpoint that is none is refused", () => {
  for (const wrong of [
    "https://localhost",
    "https://:7443",
    "https://user@localhost:7443",
    "https://localhost:7443/path",
    "https://localhost:7443?x",
    "https://localhost:port",
    "https://localhost:99999",
    "https://",
    "https://[::1:7443",
    "http://cofferd.example.org:7443",
    "http://192.0.2.1:7443",
    "http://0.0.0.0:7443",
    "http://localhost.example.org:7443",
    "ftp://localhost:7443",
    "localhost:7443",
  ]) {
    test(wrong, () => {
      assert.throws(() => new Client({ endpoint: wrong }), { name: "InvalidArgument", message: /^endpoint/ });
    });
  }
});

test("an endpoint is understood", () => {
  for (const [given, target] of [
    ["https://cofferd.example.org:7443/", "cofferd.example.org:7443"],
    ["https://[::1]:7443", "[::1]:7443"],
    ["http://[::1]:7443", "[::1]:7443"],
    ["http://127.9.9.9:1", "127.9.9.9:1"],
    ["unix:///run/cofferd.sock", "unix:/run/cofferd.sock"],
  ] as const) {
    assert.equal(new Client({ endpoint: given }).transport.settings.target, target);
  }
});

test("files that are none are refused", () => {
  const cert = join(directory, "cert.pem");
  const none = join(place, "none");
  for (const wrong of [place, none, { ca: none }, { cert }, { ca: authority, cert, key: cert }]) {
    assert.throws(() => new Client({ endpoint, tls: wrong }), { name: "InvalidArgument", message: /^tls/ });
  }
  for (const elsewhere of [secured.endpoint, "http://localhost:7443"]) {
    assert.throws(() => new Client({ endpoint: elsewhere, tls: directory }), InvalidArgument);
  }
});

test("a key is in no representation", () => {
  const client = new Client({ endpoint, tls: directory });
  assert(!inspect(client, { depth: 9, showHidden: true }).includes("PRIVATE"));
  assert(!JSON.stringify(client.transport.settings).includes("PRIVATE"));
});
