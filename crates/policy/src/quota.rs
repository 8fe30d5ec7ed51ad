//! Rate limits of a profile. Serialised, they are a policy section again.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// A window. The shortest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
}

impl Span {
    /// All windows, shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// Returns the length in milliseconds.
    pub const fn millis(self) -> u64 {
        match self {
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => 86_400_000,
        }
    }

    /// Returns the name used in a policy file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// Most calls in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// This many calls at most; never 0.
    Calls(u32),
    /// No limit. Calls are still counted.
    Unlimited,
}

impl Limit {
    /// Returns the number of calls, if there is a limit.
    pub fn calls(self) -> Option<u32> {
        match self {
            Self::Calls(calls) => Some(calls),
            Self::Unlimited => None,
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Calls(calls) => serializer.serialize_u32(*calls),
            Self::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

/// Most calls in each window. All limits apply at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quota {
    /// In any 60 seconds.
    pub minute: Limit,
    pub hour: Limit,
    /// In any 24 hours.
    pub day: Limit,
}

impl Quota {
    pub const fn new(minute: u32, hour: u32, day: u32) -> Self {
        Self { minute: Limit::Calls(minute), hour: Limit::Calls(hour), day: Limit::Calls(day) }
    }

    /// Returns the limit of one window.
    pub fn of(&self, span: Span) -> Limit {
        match span {
            Span::Minute => self.minute,
            Span::Hour => self.hour,
            Span::Day => self.day,
        }
    }
}

/// A profile's rate limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RateLimits {
    /// Limits of one agent, by operation, or by `mcp.SERVER` for all tools of an upstream server.
    ///
    /// `default` applies to every operation that is not named.
    pub operations: BTreeMap<String, Quota>,
    /// Limit of one run, all operations together.
    pub run: Quota,
    /// Limit of one principal, all its runs and agents together.
    pub principal: Quota,
}

impl RateLimits {
    /// Key for every operation that is not named.
    pub const DEFAULT: &'static str = "default";

    /// Returns the limit of an operation, and the key in the policy that sets it.
    pub fn operation(&self, name: &str) -> (&str, Quota) {
        let named = self.operations.get_key_value(name);
        let found = named.or_else(|| self.operations.get_key_value(Self::DEFAULT));
        found.map_or((Self::DEFAULT, STRICT_DEFAULT), |(key, quota)| (key.as_str(), *quota))
    }
}

/// Limit of every operation that is not in [`strict`].
pub(crate) const STRICT_DEFAULT: Quota = Quota::new(20, 200, 1_000);
pub(crate) const STRICT_RUN: Quota = Quota::new(100, 1_500, 10_000);
/// A principal may have thousands of agents.
pub(crate) const STRICT_PRINCIPAL: Quota = Quota::new(6_000, 100_000, 1_000_000);

/// Returns the limits of the seed `001_…`, which apply if a policy sets none.
pub(crate) fn strict() -> BTreeMap<String, Quota> {
    [
        ("read", Quota::new(30, 500, 5_000)),
        ("write", Quota::new(10, 100, 500)),
        ("exec", Quota::new(5, 50, 200)),
        (RateLimits::DEFAULT, STRICT_DEFAULT),
    ]
    .map(|(operation, quota)| (operation.to_owned(), quota))
    .into()
}
