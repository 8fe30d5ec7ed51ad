/**
 * Repairs a program in a clone of a repository, and exports the change.
 *
 * loop.ts REPOSITORY
 */

import { writeFileSync } from "node:fs";
import { Clone, Denied, Sandbox } from "@cofferdam/sdk";

const PROGRAM = "area() { echo $(($1 * $2)); }\n";
const TEST = ["sh", "test.sh"];

const workspace = Clone(process.argv[2] ?? "", { keep: false });
await using sandbox = await Sandbox.create({ profile: "open", agentId: "repairer", workspace });
console.log("before:", (await sandbox.commands.run(TEST)).exitCode);
await sandbox.files.write("area.sh", PROGRAM);
console.log("after:", (await sandbox.commands.run(TEST, { timeout: 60, check: true })).stdout.trim());
try {
  await sandbox.commands.run(["rm", "-rf", "."]);
} catch (refusal) {
  if (!(refusal instanceof Denied)) throw refusal;
  console.log("refused:", refusal.reason);
}
for await (const { operation, record } of sandbox.audit.stream({ follow: false, kinds: ["call_receipt"] })) {
  const { status } = record["outcome"] as { status: string };
  console.log("event:", operation, status);
}
writeFileSync("change.diff", (await sandbox.git.diff()).output);
