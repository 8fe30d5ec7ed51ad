#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod act;
mod approval;
mod board;
mod command;
mod decide;
mod draw;
mod feed;
mod harmless;
mod notify;
mod once;
mod pager;
mod rows;
mod screen;
mod view;
mod votes;

pub use approval::{expiry, render as render_approval};
pub use command::Top;
pub use notify::Notifier;
pub use screen::{is_possible, review};
pub use votes::missing;
