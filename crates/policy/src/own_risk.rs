//! The risk of each operation without a profile.

use operations::deny::DenyList;
use operations::{Effect, Operation};

use crate::{Risk, holding::EXEC_READ_ONLY};

/// Returns the risk of an operation, or of `exec.read_only`, if the profile sets none.
///
/// An unknown operation is critical. If commands may remove files, `delete` is not critical, because it keeps the files
/// in the trash.
pub fn default_risk(operation: &str, deny_list: DenyList) -> Risk {
    match Operation::effect_of(operation) {
        Some(Effect::Looks | Effect::Reads | Effect::Keeps) => Risk::Low,
        // Hints of a server about its own tools do not lower the risk.
        Some(Effect::Runs | Effect::Writes | Effect::Commits | Effect::Foreign) => Risk::High,
        None if operation == EXEC_READ_ONLY => Risk::Low,
        Some(Effect::Deletes) if !deny_list.is_on() => Risk::High,
        Some(Effect::Deletes) | None => Risk::Critical,
    }
}
