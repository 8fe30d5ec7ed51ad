//! Tests against a real engine. They need root and Docker Engine, and fail with a plain sentence where either is
//! missing. Every container, image and mount that they make goes with them.

// Helpers of tests fail by panicking, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod calls;
mod container;
mod engine;
mod support;
mod tars;
