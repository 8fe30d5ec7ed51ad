#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod destination;
mod name;
mod narrowed;
mod only;
mod pattern;
mod pool;
mod range;
mod rule;
mod rules;
mod settings;
mod tls_upstream;
mod widened;
mod words;

#[cfg(test)]
mod properties;

pub use destination::{BadDestination, Destination};
pub use name::{BadName, HostName};
pub use narrowed::{Narrowed, Widening};
pub use pattern::{BadPattern, HostPattern};
pub use pool::{BadPool, NoAddress, Pool};
pub use range::{Kind, Range, check};
pub use rule::{Decision, Rule, Scheme, Verdict};
pub use rules::{Rules, Source};
pub use settings::{Fault, Settings};
pub use widened::{NotWider, Widened};
