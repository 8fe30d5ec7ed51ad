#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only this workspace calls it

mod bounds;
mod exceeded;
mod groups;
mod share;
mod state_file;
mod table;
mod tenancy;
mod traffic;

pub use bounds::{Amounts, Bounds, Resource};
pub use exceeded::Exceeded;
pub use groups::FORMAT as FORMAT_OF_GROUPS;
pub use table::{Member, Tenant, Tenants};
pub use tenancy::{Membership, Tenancy, TenantUse};
pub use traffic::FORMAT;
