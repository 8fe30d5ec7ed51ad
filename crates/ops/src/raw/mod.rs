//! Operations as somebody wrote them: not believed yet.
//!
//! Trust boundary: `into_operation` is the only way from a request to an [`crate::Operation`], whoever made the
//! request. The API fills these in from its messages, dialects from a model's arguments; every bound that the types
//! of this crate promise is established here, once for all of them.
//!
//! Fields are named in [`Malformed`] by their canonical path, such as `grep.max_matches`. An empty path or `None`
//! stands for the default, where there is one.

mod change;
mod check;
mod delete;
mod exec;
mod git;
mod look;
mod malformed;
mod mcp;
mod patch;
mod search;
mod shell;

pub use change::{Change, Edit, Write};
pub use delete::Delete;
pub use exec::Exec;
pub use git::Git;
pub use look::{List, Read};
pub use malformed::Malformed;
pub use mcp::Mcp;
pub use patch::{FrontMatter, Patch};
pub use search::{Glob, Grep};
pub use shell::Shell;

#[cfg(test)]
mod tests;
