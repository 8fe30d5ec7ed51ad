//! Writes the container's own files, outside the run's mounts, as a command of the run could.
//!
//! All other writes happen in the host lane. The host has no such directory: `/tmp` and the directories of a writable root belong to the
//! container, and so do their permissions. These files do not outlive the container.

use jail::{Jail, Mount, SandboxPath};
use operations::{Bounds, Edit, OpResult, Operation, Outcome, Reason, ToolFailure, Write};

/// Writes or edits the file that the operation names. Follows links in the directories that lead to it.
pub(crate) fn write(jail: &Jail, operation: &Operation, bounds: &Bounds) -> Outcome {
    match operation {
        Operation::Write(write) if is_outside(&write.path) => {
            let written = jail
                .settled(&write.path)
                .map_err(ToolFailure::from)
                .and_then(|path| file_ops::write(jail, &Write { path, ..write.clone() }, bounds, None));
            if let Some(uploaded) = &write.uploaded {
                file_ops::remove_staged(jail, &uploaded.id);
            }
            Ok(match written? {
                OpResult::Write(result) => {
                    OpResult::Write(operations::WriteResult { path: write.path.to_string(), ..result })
                }
                other => other,
            })
        }
        Operation::Edit(edit) if is_outside(&edit.path) => {
            let path = jail.settled(&edit.path)?;
            Ok(match file_ops::edit(jail, &Edit { path, ..edit.clone() }, bounds, None)? {
                OpResult::Edit(result) => {
                    OpResult::Edit(operations::EditResult { path: edit.path.to_string(), ..result })
                }
                other => other,
            })
        }
        _ => {
            let message = format!("{}: not a file operation of the container lane", operation.name());
            Err(ToolFailure::new(Reason::InvalidArgument, message))
        }
    }
}

fn is_outside(path: &SandboxPath) -> bool {
    path.mount() == Mount::Container
}
