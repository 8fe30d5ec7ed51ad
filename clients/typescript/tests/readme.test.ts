/** The examples of the README and of the book, as they stand; only names of this host are others. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Daemon, repository } from "./daemon.js";
import { namesIn } from "./names.js";

const PACKAGE = join(import.meta.dirname, "../..");
const README = readFileSync(join(PACKAGE, "README.md"), "utf8");
const EXAMPLES = [...README.matchAll(/```ts\n(.*?)```/gs)].map((match) => match[1] ?? "");
const BOOK = join(PACKAGE, "../../docs/examples");
const run = promisify(execFile);

// Beneath the package, so that an example finds it.
const place = mkdtempSync(join(PACKAGE, "dist", "readme-"));
let daemon: Daemon;

before(async () => {
  daemon = await Daemon.start();
});

after(async () => {
  rmSync(place, { recursive: true });
  await daemon[Symbol.asyncDispose]();
});

/** Compiles the text as strictly as the package itself, runs it with these arguments, and returns its output. */
async function said(name: string, text: string, ...args: string[]): Promise<string> {
  const directory = join(place, name);
  mkdirSync(directory, { recursive: true });
  const options = { rootDir: ".", outDir: ".", declaration: false };
  const config = {
    extends: join(PACKAGE, "tsconfig.json"),
    compilerOptions: options,
    include: ["example.ts"],
    exclude: [],
  };
  writeFileSync(join(directory, "tsconfig.json"), JSON.stringify(config));
  writeFileSync(join(directory, "example.ts"), text);
  await run(process.execPath, [join(PACKAGE, "node_modules/typescript/bin/tsc"), "-p", directory]);
  const env = { ...process.env, COFFERDAM_ENDPOINT: daemon.endpoint };
  return (await run(process.execPath, [join(directory, "example.js"), ...args], { cwd: directory, env })).stdout;
}

test("there are six", () => {
  assert.equal(EXAMPLES.length, 6);
});

test("the first example", async () => {
  const hello = join(daemon.roots, "hello");
  mkdirSync(join(hello, "src"), { recursive: true });
  writeFileSync(join(hello, "src", "main.rs"), 'fn main() { println!("Hello"); }\n');
  writeFileSync(join(hello, "Makefile"), "test:\n\tgrep Goodbye src/main.rs\n");
  repository(hello);
  const image = process.env["COFFERDAM_TEST_IMAGE"];
  assert(image, "COFFERDAM_TEST_IMAGE names no image");
  const example = EXAMPLES[0]?.replace("/srv/workspaces/hello", hello).replace("cofferdam/dev", image) ?? "";
  const told = await said("first", example);
  assert.match(told, /line: 1/);
  assert.match(told, /Goodbye/);
  assert.match(told, /^[0-9a-f]{40}$/m);
});

test("the model loop", async () => {
  const told = await said(
    "loop",
    `import { Sandbox } from "@cofferdam/sdk";
    const call = { id: "c1", function: { name: "read", arguments: '{"file_path": "a.txt"}' } };
    const response: { choices: [{ message: { tool_calls: (typeof call)[] } }] } = {
      choices: [{ message: { tool_calls: [call] } }],
    };
    const messages: object[] = [];
    await using sandbox = await Sandbox.create({ profile: "open" });
    await sandbox.files.write("a.txt", "hi");
    ${EXAMPLES[1]}
    console.log(JSON.stringify(messages), tools.length);`,
  );
  assert.match(told, /"tool_call_id":"c1","content":".*hi/);
});

test("the example for the AI SDK", async () => {
  const [imports = "", body = ""] = EXAMPLES[2]?.split("\n\n") ?? [];
  const told = await said(
    "ai",
    `import { Sandbox } from "@cofferdam/sdk";
    import { MockLanguageModelV3 } from "ai/test";
    ${imports}
    const prompt = "Say it.";
    const model = new MockLanguageModelV3({
      doGenerate: {
        content: [{ type: "text", text: "said" }],
        finishReason: { unified: "stop", raw: undefined },
        usage: {
          inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
          outputTokens: { total: 1, text: 1, reasoning: 0 },
        },
        warnings: [],
      },
    });
    await using sandbox = await Sandbox.create({ profile: "open" });
    ${body}
    console.log(text);`,
  );
  assert.equal(told, "said\n");
});

test("commands in the background", async () => {
  const told = await said("background", EXAMPLES[3] ?? "");
  assert.match(told, /^\[ 'counter' \]\n2\n/);
  assert.match(told, /40 120/);
  assert.match(told, /\n0\n$/);
});

test("sessions and transfers", async () => {
  const directory = join(place, "sessions");
  mkdirSync(join(directory, "data"), { recursive: true });
  writeFileSync(join(directory, "data", "a.txt"), "a\n");
  const told = await said("sessions", EXAMPLES[4] ?? "");
  assert.match(told, /bytes\nfast yes\n\ncreated \/workspace\/data\/made.txt\n$/);
  assert.deepEqual(namesIn(join(directory, "result")), ["a.txt", "made.txt"]);
  assert.equal(readFileSync(join(directory, "result", "made.txt"), "utf8"), "fast yes\n");
});

test("forks and checkpoints", async () => {
  const answers = join(daemon.roots, "answers");
  mkdirSync(answers);
  assert.equal(
    await said("forks", (EXAMPLES[5] ?? "").replace("/srv/workspaces/answers", answers)),
    "1 file changed\n",
  );
  assert.equal(readFileSync(join(answers, "answer.txt"), "utf8"), "42\n");
});

test("the loop of the book", async () => {
  const area = join(daemon.roots, "area");
  mkdirSync(area);
  writeFileSync(join(area, "area.sh"), "area() { echo $(($1 + $2)); }\n");
  writeFileSync(join(area, "test.sh"), '. ./area.sh\n[ "$(area 6 7)" = 42 ] && echo passed\n');
  repository(area);
  const told = await said("book", readFileSync(join(BOOK, "loop.ts"), "utf8"), area);
  assert.match(told, /^before: 1\nafter: passed\nrefused: COMMAND_NOT_ALLOWED\n/);
  assert.match(told, /event: write succeeded\n/);
  assert.match(
    readFileSync(join(place, "book", "change.diff"), "utf8"),
    /^\+area\(\) \{ echo \$\(\(\$1 \* \$2\)\); \}$/m,
  );
});
