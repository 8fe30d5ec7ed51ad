/**
 * A sandbox's tools for the AI SDK, the package `ai`.
 *
 * ```ts
 * await generateText({ model, tools: await tools(sandbox), stopWhen: stepCountIs(20), prompt });
 * ```
 */

import { dynamicTool, type JSONSchema7, jsonSchema, type Tool } from "ai";
import { InfrastructureError } from "./errors.js";
import type { Sandbox } from "./sandbox.js";
import { failed } from "./status.js";
import { Fault } from "./v1.js";

/**
 * The tools that policy leaves to the agent, by name.
 *
 * A call that fails or is denied is an answer for the model, as text. So is one that a person has to approve, unless the
 * sandbox waits for approvals (`withOptions({ waitForApproval: true })`). Aborting the generation ends its calls.
 *
 * No model is told of an `InfrastructureError`: `generateText` throws it, and so do the streams of `streamText`. With version 5
 * of the AI SDK read a stream, because a promise such as `text` alone is not settled then.
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
      execute: async (input, { abortSignal: signal }) => {
        try {
          const answer = await sandbox.answerOf(name, input as Record<string, unknown>, { ...options, signal });
          return answer.error?.fault === Fault.INFRASTRUCTURE ? failed(answer) : answer.rendered;
        } catch (error) {
          if (error instanceof InfrastructureError) {
            return error;
          }
          throw error;
        }
      },
      toModelOutput,
    });
  }
  return made;
}

/**
 * The output of a tool for the model. Throws an `InfrastructureError`, which ends the generation: the AI SDK gives the model
 * whatever `execute` throws.
 */
function toModelOutput(given: unknown): { type: "text"; value: string } {
  // Version 5 gives the output alone.
  const isWhole = typeof given === "string" || given instanceof Error;
  const output = isWhole ? given : (given as { output: unknown }).output;
  if (output instanceof InfrastructureError) {
    throw output;
  }
  return { type: "text", value: typeof output === "string" ? output : JSON.stringify(output) };
}
