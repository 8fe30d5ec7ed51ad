//! The state disk: what each run may have of it, and what the daemon needs of it itself.
//!
//! ```text
//!  launch ─► Projects: a project for what is made for the run ─► the kernel refuses what is too much
//!  watch (4 times a second) ─► free space ─► fell? ─► measure the runs in use ─► Account: within, over, locked
//!                                 │                                                     │
//!                                 └─► low, full: record, alert                          ├─► record, alert
//!                                                                                       └─► the run's commands end
//!  call ─► Quotas::check ─► WRITE_LIMIT, unless it makes room
//!  upload ─► Reservation: its room from its beginning to its end, or WRITE_LIMIT
//! ```
//!
//! Where the file system has project quotas, the kernel holds a run to its quota at every moment, and the daemon only says why
//! writes fail. Elsewhere a run can have more than its quota until the daemon has seen it: a fraction of a second, in which
//! what it takes is bounded by its disk's speed and by the largest file that it may write. Then its commands are ended, which
//! also lets go of files that have no name any more, and nothing more is written. Commands are taken again, for they may delete;
//! one that takes more instead is ended, and the run is locked. `delete`, `StopRun` and `DeleteRun` always work.
//!
//! The daemon never opens a file that an agent made: what is looked at is names and sizes (`containers::measure`), and for files
//! that have no name any more what the kernel says of the run's processes (`containers::unnamed`).

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
