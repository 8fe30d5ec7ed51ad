#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod compare;
mod fork;
mod lineage;
mod origin;
mod prune;
mod table;
mod tree;

pub use compare::Compare;
pub use fork::Fork;
pub use prune::Prune;
pub use tree::Tree;

/// Number of runs that are searched for those of a family.
const MOST_RUNS: usize = 100_000;
