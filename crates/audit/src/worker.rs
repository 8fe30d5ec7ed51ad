//! Changes of workers and companions that are on record: a closed list, so that metrics can count each by its name.

use serde_json::json;

use crate::event::{Event, Kind};

macro_rules! changes {
    ($($(#[$doc:meta])* $change:ident => $name:literal,)*) => {
        /// Change of a worker of a lane, of the egress or of a companion.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WorkerChange {
            $($(#[$doc])* $change,)*
        }

        impl WorkerChange {
            /// All changes. The macro lists each that there is.
            pub const ALL: &[Self] = &[$(Self::$change),*];

            /// Returns the name in `details.event` of the record.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$change => $name,)*
                }
            }
        }
    };
}

changes! {
    /// The worker ended without an order of the daemon.
    Lost => "lost",
    /// The companion ended before its run.
    Ended => "ended",
    /// The engine did not pause the companion with its run.
    NotPaused => "not_paused",
    /// The engine did not resume the companion with its run.
    NotResumed => "not_resumed",
}

impl WorkerChange {
    /// Returns the change with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|change| change.as_str() == name)
    }
}

impl Event {
    /// Creates the event of a worker or a companion. `why` is the reason, if one is known.
    pub fn of_worker(worker: &str, change: WorkerChange, why: Option<&str>) -> Self {
        let mut details = json!({ "worker": worker, "event": change.as_str() });
        if let Some(why) = why {
            details["why"] = why.into();
        }
        Self::new(Kind::WorkerEvent).details(details)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_change_has_a_name_of_its_own() {
        let names: BTreeSet<_> = WorkerChange::ALL.iter().map(|change| change.as_str()).collect();
        assert_eq!(names.len(), WorkerChange::ALL.len());
        for change in WorkerChange::ALL {
            assert_eq!(WorkerChange::parse(change.as_str()), Some(*change));
            let event = Event::of_worker("w", *change, Some("it left"));
            let expected = json!({ "worker": "w", "event": change.as_str(), "why": "it left" });
            assert_eq!((event.kind, event.details), (Kind::WorkerEvent, Some(expected)));
        }
        assert_eq!(WorkerChange::parse("other"), None);
    }
}
