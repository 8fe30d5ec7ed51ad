#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod log_level;
mod reload;
mod status;

pub use log_level::LogLevel;
pub use reload::Reload;
pub use status::Status;
