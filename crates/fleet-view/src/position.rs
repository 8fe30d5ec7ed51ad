//! The place where a reader of all logs is.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cofferdam_client::NodeId;
use fleet_config::MAX_NODES;

/// Begins each position, and is the version of its form.
const PREFIX: &str = "p1.";
/// Bytes of one node: its number, its log, and a sequence number.
const ENTRY: usize = 2 + 16 + 8;

/// Place in one log: after this record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Identity of the log.
    pub(crate) log: [u8; 16],
    pub(crate) sequence: u64,
}

/// Place in the logs of all nodes. A node that it lacks is read from its first record.
///
/// As text it is opaque. Its text for the fleet of n nodes has 35 n characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position(BTreeMap<NodeId, Mark>);

/// Refusal of a text that is no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no position in the logs of a fleet: give one that `coffer --fleet audit tail` printed")]
pub struct BadPosition;

impl Position {
    pub(crate) fn of(&self, node: NodeId) -> Option<Mark> {
        self.0.get(&node).copied()
    }

    pub(crate) fn set(&mut self, node: NodeId, mark: Mark) {
        self.0.insert(node, mark);
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |(node, mark): (&NodeId, &Mark)| {
            [&node.get().to_be_bytes()[..], &mark.log, &mark.sequence.to_be_bytes()].concat()
        };
        let bytes: Vec<u8> = self.0.iter().flat_map(entry).collect();
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Position {
    type Err = BadPosition;

    fn from_str(text: &str) -> Result<Self, BadPosition> {
        let encoded = text.strip_prefix(PREFIX).ok_or(BadPosition)?;
        if encoded.len() > (MAX_NODES * ENTRY).div_ceil(3) * 4 {
            return Err(BadPosition);
        }
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| BadPosition)?;
        let (entries, rest) = bytes.as_chunks::<ENTRY>();
        let mut position = Self::default();
        for entry in entries {
            let (node, mark) = parsed(entry).ok_or(BadPosition)?;
            if position.0.insert(node, mark).is_some() {
                return Err(BadPosition);
            }
        }
        if rest.is_empty() { Ok(position) } else { Err(BadPosition) }
    }
}

fn parsed(entry: &[u8; ENTRY]) -> Option<(NodeId, Mark)> {
    let (node, rest) = entry.split_first_chunk()?;
    let (log, sequence) = rest.split_first_chunk()?;
    let node = NodeId::try_from(u16::from_be_bytes(*node)).ok()?;
    Some((node, Mark { log: *log, sequence: u64::from_be_bytes(sequence.try_into().ok()?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::try_from(number).unwrap()
    }

    #[test]
    fn a_position_survives_its_text() {
        let mut position = Position::default();
        assert_eq!(position.to_string().parse(), Ok(position.clone()));
        for (number, log, sequence) in [(1, 7, 42), (65_535, 255, u64::MAX), (3, 0, 0)] {
            position.set(node(number), Mark { log: [log; 16], sequence });
            assert_eq!(position.to_string().parse(), Ok(position.clone()));
        }
        assert_eq!(position.of(node(1)), Some(Mark { log: [7; 16], sequence: 42 }));
        assert_eq!(position.of(node(2)), None);
        let mut full = Position::default();
        for number in 1..=512 {
            full.set(node(number), Mark { log: [1; 16], sequence: 1 });
        }
        assert_eq!(full.to_string().parse(), Ok(full));
    }

    #[test]
    fn other_texts_are_no_positions() {
        let mut position = Position::default();
        position.set(node(1), Mark { log: [7; 16], sequence: 42 });
        let text = position.to_string();
        let once = URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).unwrap();
        let twice = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([&once[..], &once].concat()));
        let zero = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode([0; ENTRY]));
        let long = format!("{PREFIX}{}", "A".repeat(100_000));
        for wrong in [
            "",
            "42",
            "p1",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}A"),
            "p2.",
            "p1.é",
            &twice,
            &zero,
            &long,
        ] {
            assert_eq!(wrong.parse::<Position>(), Err(BadPosition), "{wrong:.60}");
        }
    }
}
