//! The level: which events are logged.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Longest level, bytes.
const LONGEST: usize = 1_024;

/// Libraries whose lower levels have contents of requests, or a line for each frame, and the level that they keep.
const KEPT: [(&str, LevelFilter); 4] = [
    ("bollard", LevelFilter::INFO),
    ("h2", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("rmcp", LevelFilter::WARN),
];

/// A valid level, such as `info` or `info,cofferd=debug`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level(String);

/// `info`.
impl Default for Level {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl Level {
    /// Reads a level. The error says what it must be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let must = "must be error, warn, info, debug, trace or a list such as info,cofferd=debug";
        if text.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} bytes"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ",=:_- ".contains(c);
        if text.trim().is_empty() || !text.chars().all(is_plain) {
            return Err(must.to_owned());
        }
        // The parser takes another word for a target with everything, and a misspelt level would mean `trace`.
        let is_level = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
        if !text.split(',').all(|part| is_level(part.trim())) {
            return Err(must.to_owned());
        }
        let targets: Targets = text.parse().map_err(|_| must.to_owned())?;
        for (target, level) in &targets {
            if let Some((library, most)) =
                KEPT.iter().find(|(library, most)| target.starts_with(library) && level > *most)
            {
                return Err(format!(
                    "gives {target} more than {most}: {library} logs contents of requests beyond it, which must not be in a log"
                ));
            }
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the filter of events. The levels of libraries that are kept come last, and so count.
    pub(crate) fn filter(&self) -> EnvFilter {
        let kept = KEPT.iter().map(|(library, level)| format!("{library}={level}"));
        let all: Vec<String> = [self.0.clone()].into_iter().chain(kept).collect();
        EnvFilter::new(all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_lists_are_read_and_all_else_is_refused() {
        for good in ["info", "error", "trace", "warn,cofferd=debug", "info,cofferd::rpc=trace"] {
            assert_eq!(Level::parse(good).unwrap().as_str(), good);
        }
        let long = "a=info,".repeat(200);
        for bad in ["", " ", "loud", "info,cofferd", "info,x=loud", "info,[span]=trace", "info\n", &long] {
            assert!(Level::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_level_opens_what_libraries_log_of_requests() {
        for bad in ["bollard=debug", "info,bollard::docker=trace", "hyper=trace", "rmcp=info"] {
            let why = Level::parse(bad).unwrap_err();
            assert!(why.contains("contents of requests"), "{bad}: {why}");
        }
        let filter = Level::parse("trace").unwrap().filter().to_string();
        assert!(filter.contains("bollard=info") && filter.contains("rmcp=warn"), "{filter}");
        assert!(Level::parse("info,bollard=warn").is_ok());
    }
}
