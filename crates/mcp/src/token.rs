//! A run's token, as a client holds it: `cft_RUN_SECRET`.

use std::fmt;

use tonic::metadata::{Ascii, MetadataValue};

/// The prefix of a token.
const PREFIX: &str = "cft_";
/// Most bytes of a token.
const MAX_BYTES: usize = 128;

/// A run's token. Only the daemon can tell whether it is valid.
#[derive(Clone, PartialEq, Eq)]
pub struct RunToken {
    run: String,
    shown: MetadataValue<Ascii>,
}

/// The error of a text that is no run's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a run's token: `coffer run create --issue-token` prints one, which begins with {PREFIX}"
)]
pub struct BadToken;

impl RunToken {
    /// Parses a token as it was printed. Ignores white space around it.
    pub fn parse(text: &str) -> Result<Self, BadToken> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX_BYTES).ok_or(BadToken)?;
        let (run, secret) = rest.split_once('_').ok_or(BadToken)?;
        let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain(run) || !plain(secret) {
            return Err(BadToken);
        }
        let mut shown = MetadataValue::try_from(format!("Bearer {text}")).map_err(|_| BadToken)?;
        shown.set_sensitive(true);
        Ok(Self { run: run.to_owned(), shown })
    }

    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the token itself, for a comparison.
    pub fn reveal(&self) -> &str {
        self.shown.to_str().ok().and_then(|shown| shown.strip_prefix("Bearer ")).unwrap_or_default()
    }

    /// Returns the token as the API takes it.
    pub(crate) fn authorization(&self) -> MetadataValue<Ascii> {
        self.shown.clone()
    }
}

impl fmt::Debug for RunToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunToken({}, …)", self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::{BadToken, RunToken};

    #[test]
    fn a_token_names_its_run_and_is_never_printed() {
        let token = RunToken::parse(" cft_01a2003d-e913-74fa-99d9-5c7e53a4b3ac_c2VjcmV0\n").unwrap();
        assert_eq!(token.run(), "01a2003d-e913-74fa-99d9-5c7e53a4b3ac");
        assert_eq!(token.reveal(), "cft_01a2003d-e913-74fa-99d9-5c7e53a4b3ac_c2VjcmV0");
        assert!(!format!("{token:?} {:?}", token.authorization()).contains("c2VjcmV0"));
    }

    #[test]
    fn malformed_run_tokens_are_refused() {
        let long = format!("cft_run_{}", "A".repeat(128));
        for bad in [
            "",
            "cft_",
            "cft__",
            "cft_run",
            "cft_run_",
            "cft__secret",
            "run_secret",
            "cft_a b_c",
            "cft_ü_c",
            &long,
        ] {
            assert_eq!(RunToken::parse(bad).err(), Some(BadToken), "{bad}");
        }
    }
}
