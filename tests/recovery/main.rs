//! Tests the state after a process dies: no process runs on unseen, and the record has the known facts.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

mod adopted;
mod approvals;
mod daemon_killed;
mod engine_lost;
mod engine_silent;
mod failures;
mod fork_disk;
mod fork_killed;
mod full_disk;
mod guest_lost;
mod host_worker_lost;
mod lasting;
mod left;
mod orderly_stop;
mod overlay;
mod processes;
mod reads;
mod sessions;
mod standstill;
mod tampered;
mod torn_log;
mod warm;
mod writable_root;
