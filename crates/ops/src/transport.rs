//! Sizes of messages, and the bounds that a policy may set within them.
//!
//! ```text
//!  client ── message of the API ── daemon ── frame ── worker
//!            4 MiB                           4 MiB
//! ```
//!
//! gRPC clients accept answers of 4 MiB by default, so no message is larger, and no frame needs to be.
//! Every bound below is what remains in the worst case: the encoding that takes the most bytes, for each time that the
//! content is in the message.

/// Largest message of the API in either direction, and largest frame of a worker, bytes.
pub const MESSAGE: usize = 4 * 1024 * 1024;
/// Most bytes of content in a message; the rest is for names, counts and pieces of output.
pub const CONTENT: usize = MESSAGE - 512 * 1024;

/// Bytes that a byte of content takes as JSON, at most: `\u0001`.
const JSON: u64 = 6;
/// Bytes that a byte of a command's output takes, at most: in `result` and in `rendered`, for each of two streams.
const OUTPUT: u64 = 2 * (1 + JSON);
/// Bytes that a byte of an upstream server's answer takes, at most: in `result` and in `rendered`.
const UPSTREAM: u64 = 1 + JSON;

/// Largest `max_read_bytes`: a canonical read has its content once, encoded as asked.
pub const MAX_READ: u64 = CONTENT as u64;
/// Largest `max_write_bytes`: a `write` may bring its content as base64.
pub const MAX_WRITE: u64 = CONTENT as u64 / 4 * 3;
/// Largest `max_argv_bytes` and `max_stdin_bytes` together: both are in one request.
pub const MAX_COMMAND: u64 = CONTENT as u64;
/// Largest `max_output_bytes`.
pub const MAX_OUTPUT: u64 = CONTENT as u64 / OUTPUT;
/// Largest `max_result_bytes` of an upstream MCP server.
pub const MAX_UPSTREAM: u64 = CONTENT as u64 / UPSTREAM;
/// Most bytes of a file that one read in a dialect shows, whatever the profile allows. JSON escapes them, and others put a
/// number before each line.
pub const MAX_SHOWN: u64 = MAX_OUTPUT;
