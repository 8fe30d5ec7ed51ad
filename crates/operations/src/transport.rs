//! Sizes of messages, and the limits that a policy may set within them.
//!
//! ```text
//!  client ── message of the API ── daemon ── frame ── worker
//!            4 MiB                           4 MiB
//! ```
//!
//! gRPC clients accept answers of 4 MiB by default, so no message is larger, and no frame has to be.
//!
//! Each limit below assumes the worst case: the encoding that takes the most bytes, for each time that the content is in the message.

/// Largest message of the API in either direction, and largest frame of a worker, bytes.
pub const MESSAGE: usize = 4 * 1024 * 1024;
/// Most bytes of content in a message; the rest is for names, counts and pieces of output.
pub const CONTENT: usize = MESSAGE - 512 * 1024;

/// Most bytes that a byte of content takes in JSON: `\u0001`.
const JSON: u64 = 6;
/// Most bytes that a byte of a command's output takes: in `result` and in `rendered`, for each of two streams.
const OUTPUT: u64 = 2 * (1 + JSON);
/// Most bytes that a byte of an upstream server's answer takes: in `result` and in `rendered`.
const UPSTREAM: u64 = 1 + JSON;

/// Largest `max_read_bytes`: a canonical read has its content once, in the requested encoding.
pub const MAX_READ: u64 = CONTENT as u64;
/// Largest `max_write_bytes`: a `write` may bring its content as base64.
pub const MAX_WRITE: u64 = CONTENT as u64 / 4 * 3;
/// Largest `max_argv_bytes` and `max_stdin_bytes` together: both are in one request.
pub const MAX_COMMAND: u64 = CONTENT as u64;
/// Largest `max_output_bytes`.
pub const MAX_OUTPUT: u64 = CONTENT as u64 / OUTPUT;
/// Largest `max_result_bytes` of an upstream MCP server.
pub const MAX_UPSTREAM: u64 = CONTENT as u64 / UPSTREAM;
/// Most bytes of a file that one read in a dialect shows, whatever the profile allows.
///
/// JSON dialects escape the bytes, and other dialects put a number before each line.
pub const MAX_SHOWN: u64 = MAX_OUTPUT;
