/** Archives that lie: nothing of them is written outside of their directory, and memory is bounded. */

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { packTar, type TarHeader } from "modern-tar";
import { unpack } from "../src/archive.js";
import { namesIn } from "./names.js";

const place = mkdtempSync("/var/tmp/cofferdam-archive-");
let places = 0;
after(() => rmSync(place, { recursive: true }));

type Member = Omit<TarHeader, "size"> & { content?: string };

async function packed(...members: Member[]): Promise<Uint8Array> {
  return await packTar(
    members.map(({ content = "", ...header }) => ({ header: { ...header, size: content.length }, body: content })),
  );
}

/** Unpacks it; what it has made, in and beside its directory. */
async function made(archive: Uint8Array): Promise<{ names: string[]; leftOut: number }> {
  places += 1;
  const here = join(place, String(places));
  mkdirSync(join(here, "top"), { recursive: true });
  writeFileSync(join(here, "archive"), archive);
  try {
    const { leftOut } = await unpack(join(here, "archive"), join(here, "top"));
    return { names: namesIn(join(here, "top")), leftOut };
  } finally {
    assert.deepEqual(readdirSync(here).sort(), ["archive", "top"], "it leads out");
  }
}

const FILE: Member = { name: "a/file", content: "x" };

for (const name of ["/etc/x", "../x", "a/../../x", "a/..", "./../x"]) {
  for (const type of ["file", "directory", "symlink", "link"] as const) {
    test(`a ${type} cannot be ${name}`, async () => {
      const member = { ...FILE, name, type, linkname: "a/file", content: "" };
      await assert.rejects(made(await packed(FILE, member)), { name: "SandboxViolation" });
    });
  }
}

for (const type of ["character-device", "block-device", "fifo"] as const) {
  test(`a ${type} is not unpacked`, async () => {
    await assert.rejects(made(await packed({ name: "device", type })), { name: "SandboxViolation" });
  });
}

for (const linkname of ["/", "/etc/passwd", "..", "../x", "a/..", "a/../../x", "", "./.."]) {
  test(`a link to ${JSON.stringify(linkname)} is left out`, async () => {
    const found = await made(await packed(FILE, { name: "link", type: "symlink", linkname }));
    assert.deepEqual(found, { names: ["a", "a/file"], leftOut: 1 });
  });
}

test("no name leads through a link", async () => {
  const link: Member = { name: "l", type: "symlink", linkname: "a" };
  // Whichever comes first, one of the two has the name already.
  for (const members of [
    [link, { ...FILE, name: "l/x" }],
    [{ ...FILE, name: "l/x" }, link],
  ]) {
    await assert.rejects(made(await packed(FILE, ...members)), { code: "EEXIST" });
  }
});

test("another name is one of a file of the archive", async () => {
  const same = (linkname: string): Member => ({ name: "same", type: "link", linkname });
  assert.deepEqual((await made(await packed(FILE, same("a/file")))).names, ["a", "a/file", "same"]);
  await assert.rejects(made(await packed(FILE, same("../archive"))), { name: "SandboxViolation" });
  await assert.rejects(made(await packed(FILE, same("/etc/passwd"))), { name: "SandboxViolation" });
  await assert.rejects(made(await packed(FILE, same("none"))), { code: "ENOENT" });
});

test("a name that comes twice is refused", async () => {
  await assert.rejects(made(await packed(FILE, FILE)), { code: "EEXIST" });
});

test("git's own files are left out, whatever they are called", async () => {
  const names = [".git/config", "a/.GIT/hooks/pre-commit", "git~1", ".git /x", ".g\u200cit/x", "node_modules/.bin/x"];
  const found = await made(await packed(FILE, ...names.map((name) => ({ name, content: "x" }))));
  assert.deepEqual(found, { names: ["a", "a/file"], leftOut: names.length });
});

test("an archive that is cut or no archive is refused", async () => {
  const whole = await packed({ name: "a", content: "x".repeat(2000) });
  for (const archive of [whole.subarray(0, 1500), whole.subarray(0, 700), new Uint8Array(600).fill(65)]) {
    await assert.rejects(made(archive), { name: "InvalidArgument", message: /broken/ });
  }
});

test("a header that is endless takes no memory", async () => {
  const length = 64 * 1024 * 1024;
  const header = (await packed({ name: "x", type: "pax-header" })).slice(0, 512);
  header.set(new TextEncoder().encode(length.toString(8).padStart(11, "0")), 124);
  header.fill(32, 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.set(new TextEncoder().encode(`${sum.toString(8).padStart(6, "0")}\0 `), 148);
  await assert.rejects(made(Buffer.concat([header, new Uint8Array(length)])), { name: "InvalidArgument" });
});

test("no more levels are made than the daemon packs", async () => {
  const name = `${"d/".repeat(200)}file`;
  await assert.rejects(made(await packed({ name, content: "x" })), { name: "InvalidArgument", message: /levels/ });
});
