//! The nonce of the pages with a terminal.
//!
//! xterm.js makes `style` elements, which the policy of all other pages refuses. A page with a terminal names a nonce, which its script
//! gives to these elements. Markup that a text became there would still have no script, and no style without the nonce.

use crate::session::secret;

/// Nonce of the styles that a page's script makes. The guard adds it to the policy of the answer that has it as an extension.
#[derive(Debug, Clone)]
pub(crate) struct StyleNonce(String);

impl StyleNonce {
    pub(crate) fn new() -> Self {
        Self(secret())
    }

    /// Returns the nonce: hexadecimal digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::StyleNonce;

    #[test]
    fn each_page_has_a_nonce_of_its_own() {
        let (one, other) = (StyleNonce::new(), StyleNonce::new());
        assert_ne!(one.as_str(), other.as_str());
        assert!(one.as_str().len() >= 32 && one.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
