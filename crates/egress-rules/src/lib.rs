#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod budget;
mod destination;
mod git_faults;
mod inject;
mod money;
mod name;
mod narrowed;
mod only;
mod opening;
mod path;
mod pattern;
mod placeholder;
mod pool;
mod range;
mod request_faults;
mod rule;
mod rules;
mod secret_name;
mod settings;
mod template;
mod tls_upstream;
mod upstream;
mod widened;
mod words;

#[cfg(test)]
mod properties;

pub use budget::{Bound, Budget};
pub use git_wire::{Push, RefPattern, RepositoryPattern, Rules as GitRules};

pub use destination::{BadDestination, Destination};
pub use inject::{BadInjection, Injection};
pub use money::{BadAmount, MicroUsd};
pub use name::{BadName, HostName};
pub use narrowed::{Narrowed, Widening};
pub use opening::Opening;
pub use path::{BadPath, PathPattern, is_plain_path};
pub use pattern::{BadPattern, HostPattern};
pub use placeholder::{BadShape, Placeholder, Shape};
pub use pool::{BadPool, NoAddress, Pool};
pub use range::{Kind, Range, check};
pub use rule::{Decision, Meter, Rule, Scheme, Verdict};
pub use rules::{Rules, Source};
pub use secret_name::{BadSecretName, SecretName};
pub use settings::{Fault, Settings};
pub use template::{BadTemplate, Template};
pub use upstream::{BadUpstream, Upstream};
pub use widened::{NotWider, Widened};
