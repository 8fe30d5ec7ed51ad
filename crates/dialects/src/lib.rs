#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
// The examples in the doc comments of tools are JSON.
#![allow(clippy::doc_link_with_quotes)]

mod arguments;
mod canonical;
mod code;
mod dialect;
mod editor;
mod entries;
mod exec;
mod failure;
pub mod forge;
mod fs;
mod gateway;
mod limits;
mod list;
mod made;
mod native;
mod network;
mod policy;
mod process;
mod reading;
mod remark;
mod tool;
mod upstream;

pub use canonical::{render_canonical, render_canonical_pending};
pub use dialect::Dialect;
pub use failure::ParseFailure;
pub use limits::Limits;
pub use list::{Format, Offer};
pub use made::{Facts, Made};
pub use policy::{Consent, Denied, Policy};
pub use process::{MAX_PROCESS_WAIT, Portion, ProcessAccess, ProcessView};
pub use tool::{Effect, Tool};
pub use upstream::{UpstreamTool, parse_upstream};

static DIALECTS: [&dyn Dialect; 7] =
    [&code::Code, &native::Native, &fs::Fs, &exec::Exec, &gateway::Gateway, &forge::Forge, &editor::Editor];

/// Default dialect of clients that choose none, both of MCP and of the SDKs.
pub const DEFAULT: &str = "code";

/// Returns the dialect with exactly this name.
pub fn find(name: &str) -> Option<&'static dyn Dialect> {
    DIALECTS.into_iter().find(|dialect| dialect.name() == name)
}

/// Returns the names of all dialects, the one for coding models first.
pub fn names() -> Vec<&'static str> {
    DIALECTS.into_iter().map(Dialect::name).collect()
}

#[cfg(test)]
mod hints;
#[cfg(test)]
mod left_out;
#[cfg(test)]
mod property;
#[cfg(test)]
mod results;
#[cfg(test)]
mod tests;
