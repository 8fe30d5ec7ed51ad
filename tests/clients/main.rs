//! Clients that others have written.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

use ::audit;

/// Makes a test of each file of an SDK's own tests, and `SUITES`, which lists the files.
macro_rules! suites {
    ($($name:ident: $file:literal,)+) => {
        const SUITES: &[&str] = &[$($file),+];
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            pass($file).await;
        })+
    };
}

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
