/** Local addresses of servers in a sandbox. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  type CofferdamError,
  Denied,
  InvalidArgument,
  PreconditionFailed,
  RunLost,
  RunNotReady,
  Sandbox,
} from "@cofferdam/sdk";
import { Daemon } from "./daemon.js";
import { eventually } from "./waiting.js";

const POLICY = `
profiles:
  in: { operations: { process: allow }, exec: { default: allow }, forward: allow, allowed_images: ["*"] }
  shut: { operations: { process: allow }, exec: { default: allow }, allowed_images: ["*"] }
roles: { director: { allow: "*" }, worker: { allow: "*" } }
`;
const ECHO = `
import socket, threading
server = socket.create_server(("127.0.0.1", 7000), backlog=128)
print("up", flush=True)
def serve(one):
    while data := one.recv(65536):
        one.sendall(data)
    one.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
`;
const WEB = ["python3", "-u", "-m", "http.server", "--bind", "0.0.0.0", "8000"];

const image = process.env["COFFERDAM_TEST_IMAGE"] ?? "";
const policy = mkdtempSync("/var/tmp/cofferdam-forward-");
writeFileSync(join(policy, "in.yaml"), POLICY);
chmodSync(policy, 0o755);
let daemon: Daemon;
before(async () => {
  daemon = await Daemon.start({ config: [`policy_dir: ${policy}`] });
});
after(async () => {
  await daemon[Symbol.asyncDispose]();
  rmSync(policy, { recursive: true });
});

function sandboxOf(profile: string): Promise<Sandbox> {
  return Sandbox.create({ profile, image, endpoint: daemon.endpoint });
}

async function up(sandbox: Sandbox, command: string[], sign: string): Promise<void> {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  await sandbox.commands.run(command, {
    background: true,
    onStdout: (text) => {
      if (text.includes(sign)) {
        resolve();
      }
    },
  });
  await promise;
}

function dial(address: string, allowHalfOpen = false): Socket {
  const [host = "", port] = address.split(":");
  const socket = connect({ host, port: Number(port), allowHalfOpen });
  socket.on("error", () => {});
  return socket;
}

async function all(socket: Socket): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of socket) {
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

test("a page is read at a local address until its block ends", async () => {
  await using sandbox = await sandboxOf("in");
  await up(sandbox, WEB, "Serving");
  let address: string;
  let held: Socket;
  {
    await using web = await sandbox.forward(8000);
    address = web.address;
    assert.match(address, /^127\.0\.0\.1:\d+$/);
    for (let time = 0; time < 3; time += 1) {
      assert.match(await (await fetch(`http://${address}/`)).text(), /Directory listing/);
    }
    held = dial(address);
    await once(held, "connect");
  }
  await all(held).catch(() => {});
  const [error] = await once(dial(address), "error");
  assert.equal(error.code, "ECONNREFUSED");
});

test("many connections pass all bytes, and each side finishes by itself", async () => {
  await using sandbox = await sandboxOf("in");
  await up(sandbox, ["python3", "-c", ECHO], "up");
  const sent = Buffer.alloc(1 << 20, Buffer.from(Array.from({ length: 256 }, (_, at) => at)));
  await using echo = await sandbox.forward(7000);
  const echoed = async () => {
    const socket = dial(echo.address, true);
    socket.end(sent);
    return sent.equals(await all(socket));
  };
  assert.deepEqual(await Promise.all(Array.from({ length: 20 }, echoed)), Array(20).fill(true));
});

test("a connection that is refused or lost tells its reason", async () => {
  const told: CofferdamError[] = [];
  const onError = (error: CofferdamError) => void told.push(error);
  await using sandbox = await sandboxOf("in");
  {
    await using none = await sandbox.forward(9, { onError });
    await all(dial(none.address));
  }
  assert(told[0] instanceof PreconditionFailed && /nothing in the run listens on port 9/.test(told[0].message));
  {
    await using shut = await sandboxOf("shut");
    await using none = await shut.forward(9, { onError });
    await all(dial(none.address));
  }
  assert(told[1] instanceof Denied);
  await up(sandbox, ["python3", "-c", ECHO], "up");
  await using echo = await sandbox.forward(7000, { onError });
  const socket = dial(echo.address);
  socket.write("x");
  await once(socket, "data");
  await sandbox.stop();
  await all(socket).catch(() => {});
  // It ends before its reason is known.
  await eventually(async () => told.length > 2, "no reason is told");
  assert(told[2] instanceof RunNotReady);
  for (const [port, localPort] of [
    [0, 0],
    [65536, 0],
    [80, -1],
    [80, 65536],
    [1.5, 0],
  ] as const) {
    await assert.rejects(sandbox.forward(port, { localPort }), InvalidArgument);
  }
});

test("a connection of a lost sandbox is lost to the infrastructure", { timeout: 120_000 }, async () => {
  await using sandbox = await sandboxOf("in");
  await up(sandbox, ["python3", "-c", ECHO], "up");
  let onError: (error: CofferdamError) => void = () => {};
  const told = new Promise<CofferdamError>((resolve) => {
    onError = resolve;
  });
  await using echo = await sandbox.forward(7000, { onError });
  const socket = dial(echo.address, true);
  socket.write("x");
  await once(socket, "data");
  daemon.killContainers();
  const lost = await told;
  assert(lost instanceof RunLost && !lost.retrySafe);
  assert.deepEqual([lost.fault, lost.evidence["engine.exit_code"]], ["infrastructure", "137"]);
  socket.destroy();
});
