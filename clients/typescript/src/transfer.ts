/** What uploads and downloads have in common. */

import type { ProgressCallback } from "./types.js";

export interface TransferOptions {
  /** Is told how far it is. If it throws, the transfer ends. */
  onProgress?: ProgressCallback;
  /** Aborting it ends the transfer. */
  signal?: AbortSignal;
}
