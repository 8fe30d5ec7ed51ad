#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answers;
mod changes;
mod events;
mod feed;
mod fleet;
mod merge;
mod nodes;
mod position;
mod source;

pub use answers::{Listed, moment};
pub use changes::watch;
pub use events::{Event, Followed, follow};
pub use fleet::{Answers, Fleet, Reached, is_of_one_node};
pub use nodes::{show, status};
pub use position::{BadPosition, Position};
pub use source::Source;
