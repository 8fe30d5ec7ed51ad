//! From end to end: through the API or the command line, on a real daemon and a real engine.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

mod alerts;
mod api;
mod approvals;
mod audit;
mod audit_load;
mod bad_input;
mod bad_runs;
mod bundles;
mod bypass;
mod checkpoints;
mod cli;
mod concurrency;
mod consents;
mod default_image;
mod delete;
mod dev_image;
mod images;
mod life;
mod main_job;
mod overlay;
mod patch;
mod patch_forms;
mod pausing;
mod permissions;
mod previews;
mod rate_limits;
mod real_job;
mod receiver;
mod shell;
mod standstill;
mod startup;
mod strangers;
mod streaming;
mod streams;
mod terminal;
mod ticks;
mod timeouts;
mod tongues;
mod transcript;
mod upstream;
mod upstream_http;
mod usage;
mod usage_of_trees;
mod workspaces;
