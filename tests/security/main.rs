//! Attacks from inside of real runs and from inside of hostile workspaces. A test's name begins with the threat that it
//! is about: P paths, G git, X executing, C containers, A audit, R requests.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

mod attempts;
mod calls;
mod confinement;
mod container_paths;
mod disk_quota;
mod disk_speed;
mod exec_end;
mod exec_limits;
mod exhaustion;
mod forked;
mod frames;
mod git;
mod hardening;
mod hostile_changes;
mod hostile_files;
mod hostile_images;
mod hostile_names;
mod hostile_patterns;
mod hostile_trees;
mod inside;
mod kept_output;
mod looking;
mod mount_table;
mod neighbours;
mod overlay;
mod path_rules;
mod paths;
mod peers;
mod programs;
mod race;
mod read_only;
mod remote;
mod repositories;
mod secrets;
mod shells;
mod stays;
mod swaps;
mod wiped;
mod writable_root;
