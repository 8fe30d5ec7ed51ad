/**
 * The node of a fleet that a request is for, which goes with it as `cofferdam-node`: a balancer routes by that alone.
 *
 * An id that a node made names the node. The README of the crate `node-id` has the layout.
 */

import { type DescMessage, type Message, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";

export const NODE_METADATA = "cofferdam-node";

// A UUID of version 7, as the daemon writes it.
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
// Ids of what a daemon has. Those that a client makes, such as a request's, are not among them.
const FIELDS: ReadonlySet<string> = new Set([
  "alert_id",
  "approval_id",
  "base_id",
  "call_id",
  "checkpoint_id",
  "consent_id",
  "lift_permission_id",
  "permission_id",
  "process_id",
  "run_id",
  "run_ids",
  "session_id",
  "token_id",
  "workspace_id",
]);
// Levels of messages within a request that are searched.
const DEPTH = 3;

/** The node that made an id; null for an id of a daemon without a node, and for any other text. */
export function nodeOf(id: string): number | null {
  if (!ID.test(id)) {
    return null;
  }
  const data = Buffer.from(id.replaceAll("-", ""), "hex");
  const node = ((data.readUInt16BE(6) & 0xfff) << 4) | (data.readUInt8(8) & 0xf);
  const check = checkValue([...data.subarray(0, 6), node >> 8, node & 0xff]);
  return node !== 0 && data.readUInt16BE(11) === check ? node : null;
}

/** The CRC-16 of the polynomial 0x1021, begun at 0xFFFF. */
function checkValue(bytes: readonly number[]): number {
  let value = 0xffff;
  for (const byte of bytes) {
    value ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) {
      value = ((value << 1) ^ (value & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
  }
  return value;
}

/** The node of the first id in a request that names one: outer messages first, and fields by their numbers. */
export function nodeFor(schema: DescMessage, request: Message): number | null {
  let level: ReflectMessage[] = [reflect(schema, request)];
  for (let depth = 0; depth < DEPTH; depth++) {
    const inner: ReflectMessage[] = [];
    for (const message of level) {
      for (const id of idsOf(message, inner)) {
        const node = nodeOf(id);
        if (node !== null) {
          return node;
        }
      }
    }
    level = inner;
  }
  return null;
}

/** The ids in a message itself. Adds the messages in it to `inner`. */
function* idsOf(message: ReflectMessage, inner: ReflectMessage[]): Generator<string> {
  for (const field of message.sortedFields) {
    if (field.fieldKind === "message" && message.isSet(field)) {
      inner.push(message.get(field));
    } else if (FIELDS.has(field.name) && field.fieldKind === "scalar" && field.scalar === ScalarType.STRING) {
      yield String(message.get(field));
    } else if (FIELDS.has(field.name) && field.fieldKind === "list" && field.listKind === "scalar") {
      for (const id of message.get(field)) {
        yield String(id);
      }
    }
  }
}
