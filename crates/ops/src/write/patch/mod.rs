//! `patch`: several files, all or none.

use jail::Jail;

use crate::{Bounds, Outcome, Patch, Reason, ToolFailure};

/// Applies the patch.
pub fn patch(_jail: &Jail, _patch: &Patch, _bounds: &Bounds) -> Outcome {
    Err(unavailable())
}

/// What [`patch()`] would do. Fails as [`patch()`] would, and changes nothing.
pub fn preview_patch(_jail: &Jail, _patch: &Patch, _bounds: &Bounds) -> Outcome {
    Err(unavailable())
}

fn unavailable() -> ToolFailure {
    ToolFailure::new(Reason::Internal, "patch is not available")
}
