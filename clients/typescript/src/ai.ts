/**
 * A sandbox's tools for the AI SDK, the package `ai`.
 *
 * ```ts
 * await generateText({ model, tools: await tools(sandbox), stopWhen: stepCountIs(20), prompt });
 * ```
 */

import { dynamicTool, type JSONSchema7, jsonSchema, type Tool } from "ai";
import type { Sandbox } from "./sandbox.js";

/**
 * The tools that policy leaves to the agent, by name.
 *
 * A call that fails or is denied is an answer for the model, as text. So is one that a person has to approve, unless the
 * sandbox waits for approvals (`withOptions({ waitForApproval: true })`). Aborting the generation ends its calls.
 *
 * `dialect`: names and shapes of the tools: `code` (the default), `native`, `fs`, `exec`, `gateway`, `forge` or `editor`.
 */
export async function tools(sandbox: Sandbox, options: { dialect?: string } = {}): Promise<Record<string, Tool>> {
  const made: Record<string, Tool> = {};
  for (const listed of await sandbox.tools("mcp", options)) {
    const { name, description, inputSchema } = listed as {
      name: string;
      description: string;
      inputSchema: JSONSchema7;
    };
    made[name] = dynamicTool({
      description,
      inputSchema: jsonSchema(inputSchema),
      execute: async (input, { abortSignal: signal }) =>
        (await sandbox.callTool(name, input as Record<string, unknown>, { ...options, signal })).text,
    });
  }
  return made;
}
