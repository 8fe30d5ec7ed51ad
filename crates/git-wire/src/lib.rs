#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod capabilities;
mod commands;
mod decision;
mod judgement;
mod object_id;
mod packet;
mod reader;
mod ref_name;
mod refusal;
mod repository;
mod request;
mod rules;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;

pub use capabilities::{BadCapability, Capabilities, Report};
pub use commands::{BadCommand, Change, Command, CommandList};
pub use decision::Decision;
pub use judgement::{Ancestry, Judgement, Reason, Ruled, Ruling, Verdict};
pub use object_id::{ObjectFormat, ObjectId};
pub use packet::{BadPacket, MAX_PACKET, Packet};
pub use reader::{CommandReader, Fault, MAX_COMMANDS, MAX_LIST, Step};
pub use ref_name::{BadRefName, BadRefPattern, RefName, RefPattern};
pub use refusal::Refusal;
pub use repository::{BadRepository, Repository, RepositoryPattern};
pub use request::{Head, NotServed, Request, Service, ServiceName, Version};
pub use rules::{BadRules, Push, Rules};
