#![doc = include_str!("../README.md")]

mod channel;
pub mod client_hello;
mod connection;
mod dial;
pub mod dns;
pub mod http;
pub mod jail;
mod life;
mod meter;
mod orders;
pub mod serve;
mod splice;
mod tunnel;
