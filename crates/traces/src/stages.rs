//! The stages of a call, which become spans.

use std::time::Instant;

/// Most intervals of one call. A call that waits for its slot in many turns has the first ones.
const MOST: usize = 24;

/// A part of a call's way through the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waits for a slot, and looks at the run.
    Queue,
    /// The gateway's decisions.
    Policy,
    /// Waits for the audit log.
    Audit,
    /// The wait for a reviewer.
    Approval,
    /// The execution in a lane.
    Lane,
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Policy => "policy",
            Self::Audit => "audit",
            Self::Approval => "approval",
            Self::Lane => "lane",
        }
    }
}

/// The stages that a call went through, in their order.
#[derive(Debug, Default)]
pub struct Stages(pub(crate) Vec<(Stage, Instant, Instant)>);

impl Stages {
    /// Adds an interval. One that goes on with the last stage extends it.
    pub fn add(&mut self, stage: Stage, from: Instant, to: Instant) {
        if let Some((_, _, until)) =
            self.0.last_mut().filter(|(last, _, until)| *last == stage && *until == from)
        {
            *until = to;
        } else if self.0.len() < MOST {
            self.0.push((stage, from, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MOST, Stage, Stages};

    #[test]
    fn intervals_of_one_stage_are_joined_and_their_number_is_bounded() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut stages = Stages::default();
        stages.add(Stage::Queue, at(0), at(1));
        stages.add(Stage::Queue, at(1), at(2));
        stages.add(Stage::Queue, at(3), at(4));
        assert_eq!(stages.0, [(Stage::Queue, at(0), at(2)), (Stage::Queue, at(3), at(4))]);
        for ms in 0..1_000 {
            stages.add(Stage::Audit, at(2 * ms), at(2 * ms + 1));
        }
        assert_eq!(stages.0.len(), MOST);
    }
}
