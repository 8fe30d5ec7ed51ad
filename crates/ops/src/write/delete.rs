//! `delete`: one file or an empty directory, to the run's trash.

use jail::Jail;

use crate::{Bounds, Delete, Outcome, Reason, ToolFailure};

/// Removes it.
pub fn delete(_jail: &Jail, _delete: &Delete, _bounds: &Bounds) -> Outcome {
    Err(unavailable())
}

/// What [`delete()`] would do. Fails as [`delete()`] would, and changes nothing.
pub fn preview_delete(_jail: &Jail, _delete: &Delete, _bounds: &Bounds) -> Outcome {
    Err(unavailable())
}

fn unavailable() -> ToolFailure {
    ToolFailure::new(Reason::Internal, "delete is not available")
}
