//! The container lane's file operations. They only look, they end by the deadline, and what they hold in memory does
//! not grow with what they look at.

mod file;
mod stream;
mod text;

pub use file::read;

#[cfg(test)]
mod scene;
