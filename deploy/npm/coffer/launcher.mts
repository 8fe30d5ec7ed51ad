#!/usr/bin/env node
// Starts the program of this platform's package, with the same arguments, streams and signals.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const platform = `@cofferdam/coffer-${process.platform}-${process.arch}`;

function program(): string {
  try {
    return createRequire(import.meta.url).resolve(`${platform}/bin/coffer`);
  } catch {
    console.error(`coffer: the package ${platform} is not installed. Is there one for this platform? Then install without --omit=optional.`);
    process.exit(5);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  // A terminal sends SIGINT to both; a second one asks for nothing more.
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`coffer: ${error.message}`);
  process.exit(5);
});
child.on("close", (code, signal) => {
  process.exit(code ?? 128 + (signal ? constants.signals[signal] : 0));
});
