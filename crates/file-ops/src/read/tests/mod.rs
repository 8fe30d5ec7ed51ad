//! The operations of this lane on trees that are hostile, large, or gone the next moment.

mod glob;
mod grep;
mod ignored;
mod list;
mod read;
