#![doc = include_str!("../README.md")]

mod answer;
mod authority;
mod broken;
mod channel;
pub mod client_hello;
mod connection;
mod dial;
pub mod dns;
mod fault;
mod handles;
pub mod hide;
pub mod http;
pub mod jail;
mod life;
mod meter;
mod needles;
mod opened;
mod orders;
mod process;
mod seek;
pub mod serve;
mod splice;
mod stream;
mod tls;
mod tunnel;
pub mod usage;
