#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod keys;
mod model;
mod order;
mod project;
mod service;
mod values;

pub use document::{Problem, bounded};
pub use model::{Companion, Program, Project, Ready};
pub use project::read;
pub use values::split as words;
