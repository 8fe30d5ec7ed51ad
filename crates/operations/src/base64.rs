//! RFC 4648 base64, standard alphabet, with padding: the only encoding of content in messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes as base64.
pub fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64. Returns `None` if the text is not base64 with padding.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
