#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod report;
mod serve;
mod settings;

pub use report::Report;
pub use serve::serve;
pub use settings::Settings;
