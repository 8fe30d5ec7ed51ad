//! Bounds of a call, daemon → worker. Both ends are ours in this direction.

use ops::Bounds;
use wire::worker::v1;

/// As the worker gets them.
pub fn bounds_to_wire(bounds: &Bounds) -> v1::Bounds {
    v1::Bounds {
        max_read_bytes: bounds.max_read_bytes,
        max_write_bytes: bounds.max_write_bytes,
        max_output_bytes: bounds.max_output_bytes,
        hide_git_config: bounds.hide_git_config,
        author_name: bounds.author_name.clone(),
        author_email: bounds.author_email.clone(),
        max_spool_bytes: bounds.max_spool_bytes,
        denied_programs: bounds.denied_programs.clone(),
    }
}

/// In the worker. A frame without bounds gets the strict defaults.
pub fn bounds_from_wire(bounds: Option<v1::Bounds>) -> Bounds {
    let Some(bounds) = bounds else { return Bounds::default() };
    Bounds {
        max_read_bytes: bounds.max_read_bytes,
        max_write_bytes: bounds.max_write_bytes,
        max_output_bytes: bounds.max_output_bytes,
        max_spool_bytes: bounds.max_spool_bytes,
        hide_git_config: bounds.hide_git_config,
        denied_programs: bounds.denied_programs,
        author_name: bounds.author_name,
        author_email: bounds.author_email,
    }
}
