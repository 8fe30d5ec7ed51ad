//! Checkpoints of a run that the daemon makes by itself.

use serde::{Deserialize, Serialize};
use wire::v1;
use wire::v1::automatic_checkpoints as wired;

/// Checkpoints of a run that the daemon makes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Automatic {
    pub every: Every,
    /// Number that is kept. The oldest is deleted first.
    pub keep: u32,
}

/// Moment of an automatic checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Every {
    /// Before the first call of each task.
    Turn,
    /// After each call that wrote.
    Write,
}

impl Automatic {
    /// Most that may be kept.
    pub const MOST: u32 = 100;
    /// Number that is kept if the request names none.
    pub const USUAL: u32 = 10;

    /// Parses a request. `None`: its moment or its number is out of range.
    pub fn parse(asked: v1::AutomaticCheckpoints) -> Option<Self> {
        let every = match asked.every() {
            wired::Every::Turn => Every::Turn,
            wired::Every::Write => Every::Write,
            wired::Every::Unspecified => return None,
        };
        let keep = if asked.keep == 0 { Self::USUAL } else { asked.keep };
        (keep <= Self::MOST).then_some(Self { every, keep })
    }

    pub fn to_wire(self) -> v1::AutomaticCheckpoints {
        let every = match self.every {
            Every::Turn => wired::Every::Turn,
            Every::Write => wired::Every::Write,
        };
        v1::AutomaticCheckpoints { every: every.into(), keep: self.keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_a_moment_and_a_number_in_range() {
        let parse = |every, keep| Automatic::parse(v1::AutomaticCheckpoints { every, keep });
        let turn = i32::from(wired::Every::Turn);
        assert_eq!(parse(turn, 0).unwrap(), Automatic { every: Every::Turn, keep: Automatic::USUAL });
        let write = parse(wired::Every::Write.into(), 100).unwrap();
        assert_eq!((write.every, write.keep), (Every::Write, 100));
        assert_eq!(Automatic::parse(write.to_wire()), Some(write));
        for (every, keep) in [(0, 1), (9, 1), (turn, 101), (turn, u32::MAX)] {
            assert_eq!(parse(every, keep), None, "{every} {keep}");
        }
    }
}
