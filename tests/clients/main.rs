//! Clients that others have written.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

use ::audit;

mod book;
mod buf_curl;
mod grpc_java;
mod grpcio;
mod grpclib;
mod grpcurl;
mod mcp;
mod ocsf;
mod one_address;
mod python_sdk;
mod rust_client;
mod tool_lists;
mod typescript_sdk;
mod verify_log;
