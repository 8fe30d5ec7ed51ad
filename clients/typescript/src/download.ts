/** Files and archives on their way out of a run. A lost connection costs no byte of a file; an archive begins anew. */

import { createHash } from "node:crypto";
import { type Caller, either } from "./caller.js";
import {
  ApprovalDenied,
  ApprovalRequired,
  CofferdamError,
  FileNotFound,
  NotFound,
  PreconditionFailed,
} from "./errors.js";
import { present } from "./results.js";
import { resumed } from "./resumed.js";
import type { TransferOptions } from "./transfer.js";
import type { DownloadArchiveResponse, DownloadBegun, DownloadFileResponse, ReadResult } from "./v1.js";

const NEVER = new AbortController().signal;

export type Form = "file" | "archive";

/** Where the bytes go. */
export interface Sink {
  /** Again for each connection over which an archive comes. */
  begin(begun: DownloadBegun): unknown;
  take(data: Uint8Array): unknown;
}

type Answer = DownloadFileResponse | DownloadArchiveResponse;

/** The messages of a download, over any number of connections. `offset` says where the next one of a file begins. */
export async function* pieces(
  caller: Caller,
  form: Form,
  path: string,
  offset: () => number,
  options: TransferOptions,
): AsyncGenerator<Answer["piece"], void> {
  const { client, runId } = caller;
  const { waitForApproval } = caller.options;
  const signal = either(options.signal, caller.options.signal) ?? NEVER;
  let whole = false;
  const begin = (): AsyncIterable<Answer> =>
    form === "file"
      ? client.files.downloadFile({ runId, path, offset: BigInt(offset()), waitForApproval }, { signal })
      : client.files.downloadArchive({ runId, path, waitForApproval }, { signal });
  try {
    for await (const { piece } of resumed(client.transport, begin, () => whole, signal)) {
      whole ||= piece.case === "end";
      yield piece;
    }
  } catch (error) {
    throw ofCall(error);
  }
}

/**
 * Takes all of it, and compares the hash.
 *
 * `before`: the beginning of the file, which is here already. Throws `FileNotFound`, `PreconditionFailed` where the file changes
 * meanwhile, `LimitExceeded` and others.
 */
export async function receive(
  caller: Caller,
  form: Form,
  path: string,
  sink: Sink,
  options: TransferOptions & { before?: Uint8Array } = {},
): Promise<ReadResult> {
  const { before = new Uint8Array(), onProgress } = options;
  let done = before.length;
  let hash = createHash("sha256").update(before);
  let total: number | null = null;
  let result: ReadResult | undefined;
  for await (const piece of pieces(caller, form, path, () => done, options)) {
    if (piece.case === "begin") {
      if (form === "file") {
        total = Number(piece.value.sizeBytes);
      } else {
        done = 0;
        hash = createHash("sha256");
      }
      await sink.begin(piece.value);
    } else if (piece.case === "data") {
      if (total !== null && done + piece.value.length > total) {
        throw changed(path);
      }
      await sink.take(piece.value);
      hash.update(piece.value);
      done += piece.value.length;
      await onProgress?.(done, total);
    } else if (piece.case === "end") {
      result = piece.value.result;
    }
  }
  const ended = present(result);
  if (hash.digest("hex") !== ended.sha256) {
    throw changed(path);
  }
  return ended;
}

function changed(path: string): PreconditionFailed {
  return new PreconditionFailed(`${path}: changed while it was copied`, { reason: "PRECONDITION_FAILED" });
}

/** A refusal as that of a call. */
function ofCall(error: unknown): unknown {
  if (!(error instanceof CofferdamError) || error.callId === null) {
    // It is about the run.
    return error;
  }
  const { message, reason, callId, hint, details, retryAfter } = error;
  const { approval, approval_id: approvalId = "" } = details;
  // A reviewer's denial has the same reason.
  if (error instanceof ApprovalDenied && approval === "pending") {
    return new ApprovalRequired("a person has to approve this download", { approvalId, callId });
  }
  return error instanceof NotFound ? new FileNotFound(message, { reason, callId, hint, details, retryAfter }) : error;
}
