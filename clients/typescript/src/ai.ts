/**
 * A sandbox's tools for the AI SDK, the package `ai`.
 *
 * ```ts
 * await generateText({ model, tools: await tools(sandbox), stopWhen: stepCountIs(20), prompt });
 * ```
 */

import { dynamicTool, type JSONSchema7, jsonSchema, type Tool } from "ai";
import { type CofferdamError, InfrastructureError } from "./errors.js";
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
          return answer.error?.fault === Fault.INFRASTRUCTURE ? new Lost(failed(answer)) : answer.rendered;
        } catch (error) {
          if (error instanceof InfrastructureError) {
            return new Lost(error);
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
 * The output of a call that the infrastructure has broken. The AI SDK gives the model whatever `execute` throws, and shows the
 * output to users: there it is a text that says no more.
 */
class Lost {
  readonly #error: CofferdamError;

  constructor(error: CofferdamError) {
    this.#error = error;
  }

  raise(): never {
    throw this.#error;
  }

  toJSON(): string {
    return "The sandbox did not answer this call.";
  }
}

/** The output of a tool for the model. Throws the error of a lost call, which ends the generation. */
function toModelOutput(given: unknown): { type: "text"; value: string } {
  // Version 5 gives the output alone.
  const isNamed = typeof given === "object" && given !== null && "output" in given;
  const output = isNamed ? given.output : given;
  return output instanceof Lost ? output.raise() : { type: "text", value: String(output) };
}
