//! RFC 4648 base64, standard alphabet, with padding: the one form that content travels in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes as base64.
pub fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes, `None` when it is not base64 with padding.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
