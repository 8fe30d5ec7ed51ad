/**
 * A file or an archive on its way into a run, over any number of connections.
 *
 * ```text
 * begin at 0 ──pieces──▶ … ──the answer──▶ done
 *     ▲ lost ▼
 * GetUpload ──so many bytes──▶ begin there
 *     └───────none──▶ begin at 0 ──a call was made of it──▶ its answer, without the pieces
 *                         ▲                                    │ it was interrupted
 *                         └──no, as another request── is the file there? ──yes──▶ done
 * ```
 */

import { createHash, randomUUID } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Caller, either, succeeded } from "./caller.js";
import { type Form, pieces } from "./download.js";
import {
  AlreadyExists,
  ApprovalRequired,
  FileNotFound,
  Interrupted,
  NotFound,
  PreconditionFailed,
  RunNotReady,
} from "./errors.js";
import * as results from "./results.js";
import type { TransferOptions } from "./transfer.js";
import { sleep } from "./transport.js";
import type { ProgressCallback } from "./types.js";
import {
  type BeginUploadSchema,
  type ReadResult,
  type UploadArchiveResponse,
  type UploadFileResponse,
  type WriteResult,
  WriteResultSchema,
} from "./v1.js";

// Bytes of one message.
const PIECE = 256 * 1024;
// Seconds until the daemon is asked again whether something is over.
const PAUSE = 0.1;

/** Bytes that can be read more than once. */
export interface Source {
  readonly size: number;
  /** In lower-case hex. */
  readonly sha256: string;
  from(offset: number): AsyncIterable<Uint8Array>;
}

/** Path, mode and guards of an upload. */
export type Target = Pick<
  MessageInitShape<typeof BeginUploadSchema>,
  "path" | "mode" | "ifMatchSha256" | "createOnly"
> & { path: string };

/** A file that is open, of which each byte is read twice: for its hash, and to be sent. */
export async function ofFile(file: FileHandle, name: string, signal?: AbortSignal): Promise<Source> {
  const { size } = await file.stat();
  const from = async function* (offset: number): AsyncGenerator<Uint8Array, void> {
    for (let at = offset; at < size; ) {
      const buffer = Buffer.allocUnsafe(Math.min(PIECE, size - at));
      const { bytesRead } = await file.read(buffer, 0, buffer.length, at);
      if (bytesRead === 0) {
        throw changed(name);
      }
      yield buffer.subarray(0, bytesRead);
      at += bytesRead;
    }
  };
  const hash = createHash("sha256");
  for await (const piece of from(0)) {
    signal?.throwIfAborted();
    hash.update(piece);
  }
  return { size, sha256: hash.digest("hex"), from };
}

/** A local file is not as it was. */
export function changed(name: string): PreconditionFailed {
  return new PreconditionFailed(`${name}: changed while it was read`, { reason: "PRECONDITION_FAILED" });
}

export function ofBytes(bytes: Uint8Array): Source {
  const from = async function* (offset: number): AsyncGenerator<Uint8Array, void> {
    for (let at = offset; at < bytes.length; at += PIECE) {
      yield bytes.subarray(at, at + PIECE);
    }
  };
  return { size: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex"), from };
}

/** One upload. */
export class Upload {
  readonly #caller: Caller;
  readonly #form: Form;
  readonly #source: Source;
  readonly #target: Target;
  readonly #onProgress: ProgressCallback | undefined;
  readonly #signal: AbortSignal | undefined;
  #id = randomUUID();
  // Kept over all tries: nobody is asked twice, and nothing is written twice.
  #requestId = randomUUID();
  // Bytes that the daemon has.
  #offset = 0;
  // Bytes of which the caller was told.
  #told = 0;
  // The caller's own code threw: that is no answer of the daemon.
  #callbackThrew = false;

  constructor(caller: Caller, form: Form, source: Source, target: Target, options: TransferOptions) {
    this.#caller = caller;
    this.#form = form;
    this.#source = source;
    this.#target = target;
    this.#onProgress = options.onProgress;
    this.#signal = either(options.signal, caller.options.signal);
  }

  /** Throws `ApprovalRequired`, `PreconditionFailed`, `LimitExceeded` and others. */
  async done(): Promise<WriteResult> {
    try {
      return await this.#carriedOut();
    } catch (error) {
      // It may have been carried out, also where only a question about it found no daemon.
      const isCallers = this.#callbackThrew || this.#signal?.aborted === true;
      throw isCallers ? error : this.#caller.client.transport.lost(error, this.#requestId, false);
    }
  }

  async #carriedOut(): Promise<WriteResult> {
    const { transport } = this.#caller.client;
    const patience = transport.patience();
    for (;;) {
      try {
        return await this.#outcome(await this.#answer());
      } catch (error) {
        if (error instanceof Interrupted && !this.#callbackThrew) {
          // A try before this one made the call, and the daemon ended in its middle.
          const found = await this.#found();
          if (found !== null) {
            return this.#written(found.path);
          }
          this.#requestId = randomUUID();
          this.#beginAnew();
          continue;
        }
        const pause = transport.isLost(error) ? patience.pause() : null;
        if (this.#callbackThrew || pause === null) {
          throw error;
        }
        await sleep(pause, this.#signal);
      }
      const received = await this.#received();
      if (received === null) {
        this.#beginAnew();
        continue;
      }
      if (received > this.#offset) {
        patience.restore();
      }
      this.#offset = received;
    }
  }

  #beginAnew(): void {
    // A daemon that was killed may have left a file of the old id, which its call still needs.
    this.#id = randomUUID();
    this.#offset = 0;
  }

  async #answer(): Promise<UploadFileResponse | UploadArchiveResponse> {
    const { files } = this.#caller.client;
    const options = { signal: this.#signal };
    return this.#form === "file"
      ? await files.uploadFile(this.#messages(), options)
      : await files.uploadArchive(this.#messages(), options);
  }

  async *#messages() {
    const { size, sha256 } = this.#source;
    const begin = {
      ...this.#target,
      runId: this.#caller.runId,
      uploadId: this.#id,
      requestId: this.#requestId,
      offset: BigInt(this.#offset),
      sizeBytes: BigInt(size),
      sha256,
      waitForApproval: this.#caller.options.waitForApproval,
      refuseAwaitingApproval: this.#caller.options.onAwaitingApproval === "raise",
    };
    yield { piece: { case: "begin", value: begin } } as const;
    let done = this.#offset;
    for await (const data of this.#source.from(this.#offset)) {
      yield { piece: { case: "data", value: data } } as const;
      done += data.length;
      await this.#tell(done);
    }
  }

  async #tell(done: number): Promise<void> {
    if (done <= this.#told) {
      return;
    }
    this.#told = done;
    try {
      await this.#onProgress?.(done, this.#source.size);
    } catch (error) {
      this.#callbackThrew = true;
      throw error;
    }
  }

  async #outcome(answer: UploadFileResponse | UploadArchiveResponse): Promise<WriteResult> {
    if (answer.result !== undefined) {
      return answer.result;
    }
    const { callId, approvalId } = answer;
    const { waitForApproval } = this.#caller.options;
    if (approvalId !== "" && !waitForApproval) {
      const message = "a person has to approve this upload; nothing has been written yet";
      throw new ApprovalRequired(message, { approvalId, callId });
    }
    // A daemon that ends answers so; the next one goes on with the call.
    const call = await this.#caller.over(callId, this.#signal);
    succeeded(call, true);
    const { kind } = results.present(call.result);
    return kind.case === "write" ? kind.value : this.#written(this.#target.path);
  }

  /** Bytes that the daemon has; null: it has none, or has used them. */
  async #received(): Promise<number | null> {
    const request = { runId: this.#caller.runId, uploadId: this.#id };
    for (;;) {
      try {
        const { receivedBytes } = await this.#caller.client.files.getUpload(request, { signal: this.#signal });
        return Number(receivedBytes);
      } catch (error) {
        if (error instanceof NotFound && error.details["resource"] === "upload") {
          return null;
        }
        // The stream that was lost is not over yet, or the call that it ended in.
        if (!(error instanceof AlreadyExists)) {
          throw error;
        }
        await sleep(PAUSE, this.#signal);
      }
    }
  }

  /** The file, if it has this content. An archive is unpacked again: that comes to the same. */
  async #found(): Promise<ReadResult | null> {
    if (this.#form === "archive") {
      return null;
    }
    const { size, sha256 } = this.#source;
    for (;;) {
      try {
        const options = { signal: this.#signal };
        for await (const piece of pieces(this.#caller, "file", this.#target.path, () => size, options)) {
          if (piece.case === "end") {
            return piece.value.result?.sha256 === sha256 ? piece.value.result : null;
          }
        }
        return null;
      } catch (error) {
        if (error instanceof FileNotFound) {
          return null;
        }
        // A run is frozen for a moment after a person has consented.
        if (!(error instanceof RunNotReady && error.details["state"] === "PAUSED")) {
          throw error;
        }
        await sleep(PAUSE, this.#signal);
      }
    }
  }

  /** What an upload of the same content would be told now. */
  #written(path: string): WriteResult {
    const { createOnly, ifMatchSha256 } = this.#target;
    const { size, sha256 } = this.#source;
    const sha256Before = createOnly ? "" : ifMatchSha256 || sha256;
    return create(WriteResultSchema, { path, bytesWritten: BigInt(size), sha256After: sha256, sha256Before });
  }
}
