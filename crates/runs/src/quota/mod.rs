//! The state disk: the quota of each run, and the space that the daemon needs.
//!
//! ```text
//!  launch ─► Projects: a project for what is made for the run ─► the kernel refuses what is too much
//!  watch (1 to 100 times/s) ─► free space ─► fell? ─► measure the runs in use ─► Account: within, over, locked
//!                                 │                                                     │
//!                                 └─► low, full: record, alert                          ├─► record, alert
//!                                                                                       └─► the run's commands end
//!  call ─► Quotas::check ─► WRITE_LIMIT, unless it frees space
//!  upload ─► Reservation: its space from its beginning to its end, or WRITE_LIMIT
//! ```
//!
//! On a file system with project quotas the kernel enforces a run's quota at every moment, and the daemon only explains why writes fail.
//! Elsewhere a run can exceed its quota until the watch sees it; decision 48 bounds that excess. Then the run's commands are ended, which
//! also releases the files that no longer have a name, and the run writes nothing more. New commands are still accepted, because they may
//! delete. If one takes more instead, it is ended and the run is locked. `delete`, `StopRun` and `DeleteRun` always work.
//!
//! The daemon never opens a file that an agent made. It reads names and sizes (`containers::measure`). For files that no longer have a name
//! it reads the kernel's information about the run's processes (`containers::unnamed`).

mod account;
mod disk;
mod projects;
mod reservation;

pub use account::Account;
pub(crate) use account::{Found, Verdict};
pub(crate) use disk::{Free, Level};
pub use disk::{Quotas, Thresholds};
pub use projects::Projects;
pub(crate) use reservation::Reservation;
