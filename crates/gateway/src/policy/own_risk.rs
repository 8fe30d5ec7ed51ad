//! The risk that an operation has by itself.

use ops::deny::DenyList;
use ops::{Effect, Operation};

use super::holding::EXEC_READ_ONLY;
use crate::decision::Risk;

/// The risk of an operation, or of `exec.read_only`, where the profile says nothing. What is unknown is critical. Where commands
/// may remove files, `delete`, which keeps them in the trash, is not what nobody may do alone.
pub(crate) fn default_risk(operation: &str, deny_list: DenyList) -> Risk {
    match Operation::effect_of(operation) {
        Some(Effect::Looks | Effect::Reads) => Risk::Low,
        // What a server says of its tools is no reason to think less of them.
        Some(Effect::Runs | Effect::Writes | Effect::Commits | Effect::Foreign) => Risk::High,
        None if operation == EXEC_READ_ONLY => Risk::Low,
        Some(Effect::Deletes) if !deny_list.is_on() => Risk::High,
        Some(Effect::Deletes) | None => Risk::Critical,
    }
}
