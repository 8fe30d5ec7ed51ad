#![doc = include_str!("../README.md")]

mod authority;
mod channel;
pub mod client_hello;
mod connection;
mod dial;
pub mod dns;
pub mod hide;
pub mod http;
pub mod jail;
mod life;
mod meter;
mod needles;
mod orders;
mod path;
mod seek;
pub mod serve;
mod splice;
mod tunnel;
pub mod usage;
