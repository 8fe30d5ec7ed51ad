//! The id of a node of a fleet, and the version 7 UUIDs (RFC 9562) that name it. The README has the layout.

use std::{fmt, num::NonZeroU16, str::FromStr, sync::OnceLock};

use serde::{Deserialize, Serialize};
use uuid::{Uuid, Variant};

/// The metadata by which a client says which node a request is for: the node's number in decimal digits.
pub const NODE_METADATA: &str = "cofferdam-node";

/// Numbers one daemon among those of a fleet, 1 to 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(NonZeroU16);

/// Refuses a text or a number that is no node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node is a number from 1 to 65535, in decimal digits")]
pub struct NotANode;

/// The node that this process is, if it is one.
static OWN: OnceLock<NodeId> = OnceLock::new();

impl NodeId {
    /// Returns the node of this process, if its configuration has one.
    pub fn own() -> Option<Self> {
        OWN.get().copied()
    }

    /// Has the ids that this process makes from now on name this node. The first call counts.
    pub fn make_own(self) {
        OWN.get_or_init(|| self);
    }

    pub fn get(self) -> u16 {
        self.0.get()
    }

    /// Finds the node that made an id. `None` for ids of daemons without a node.
    pub fn of(id: Uuid) -> Option<Self> {
        let bytes = id.as_bytes();
        let node = (u16::from_be_bytes([bytes[6] & 0x0F, bytes[7]]) << 4) | u16::from(bytes[8] & 0x0F);
        let check = u16::from_be_bytes([bytes[11], bytes[12]]);
        let is_v7 = id.get_version_num() == 7 && id.get_variant() == Variant::RFC4122;
        let named = is_v7 && check == check_value(bytes, node);
        Self::try_from(node).ok().filter(|_| named)
    }

    /// Finds the node that made an id, from the id's text: hyphenated, in lower case.
    pub fn of_text(id: &str) -> Option<Self> {
        let parsed = Uuid::try_parse(id).ok()?;
        let mut printed = Uuid::encode_buffer();
        if *parsed.hyphenated().encode_lower(&mut printed) == *id { Self::of(parsed) } else { None }
    }

    /// Makes an id that names this node.
    pub fn new_id(self) -> Uuid {
        self.named_in(Uuid::now_v7())
    }

    /// Has a version 7 UUID name this node. Its last 32 bits, which are random, give way to the end of its counter.
    fn named_in(self, id: Uuid) -> Uuid {
        let (bits, node) = (id.as_u128(), u128::from(self.get()));
        let time = bits >> 80;
        let counter = (((bits >> 64) & 0xFFF) << 30) | ((bits >> 32) & 0x3FFF_FFFF);
        let check = u128::from(check_value(id.as_bytes(), self.get()));
        Uuid::from_u128(
            (time << 80)
                | (7 << 76)
                | ((node >> 4) << 64)
                | (2 << 62)
                | ((counter >> 40) << 60)
                | ((node & 0xF) << 56)
                | (((counter >> 24) & 0xFFFF) << 40)
                | (check << 24)
                | (counter & 0xFF_FFFF),
        )
    }
}

/// Makes an id, of the node that this process is, or a plain one.
pub fn new_id() -> Uuid {
    NodeId::own().map_or_else(|| plain(Uuid::now_v7), NodeId::new_id)
}

/// Returns the first id that names no node, even by chance.
fn plain(mut make: impl FnMut() -> Uuid) -> Uuid {
    loop {
        let id = make();
        if NodeId::of(id).is_none() {
            return id;
        }
    }
}

/// Computes the check value of an id's time and node: CRC-16/CCITT, whose polynomial ITU-T V.41 gives, begun at 0xFFFF.
fn check_value(id: &[u8; 16], node: u16) -> u16 {
    let covered = id[..6].iter().copied().chain(node.to_be_bytes());
    covered.fold(0xFFFF, |mut value: u16, byte| {
        value ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = value & 0x8000 != 0;
            value <<= 1;
            if carry {
                value ^= 0x1021;
            }
        }
        value
    })
}

impl TryFrom<u16> for NodeId {
    type Error = NotANode;

    fn try_from(number: u16) -> Result<Self, NotANode> {
        NonZeroU16::new(number).map(Self).ok_or(NotANode)
    }
}

impl FromStr for NodeId {
    type Err = NotANode;

    /// Parses decimal digits without sign and leading zeros.
    fn from_str(text: &str) -> Result<Self, NotANode> {
        let digits =
            text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = digits.then(|| text.parse::<u16>().ok()).flatten();
        number.and_then(NonZeroU16::new).map(Self).ok_or(NotANode)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{NodeId, NotANode, check_value, plain};

    /// Ids and the nodes that they name, which the clients in other languages read as well.
    const VECTORS: &str = include_str!("../../../clients/nodes.json");

    fn node(number: u16) -> NodeId {
        NodeId::try_from(number).unwrap()
    }

    #[test]
    fn an_id_names_the_node_that_made_it() {
        for number in [1, 2, 255, 256, 4_096, u16::MAX] {
            let id = node(number).new_id();
            assert_eq!(NodeId::of(id), Some(node(number)), "{id}");
            assert_eq!(NodeId::of_text(&id.to_string()), Some(node(number)), "{id}");
            assert_eq!(id.get_version_num(), 7);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        }
    }

    #[test]
    fn ids_of_one_node_sort_by_time_and_differ() {
        let ids: Vec<Uuid> = (0..10_000).map(|_| node(7).new_id()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_random_id_names_a_node_about_once_in_65536_times() {
        let named = (0..100_000).filter(|_| NodeId::of(Uuid::now_v7()).is_some()).count();
        assert!(named < 20, "{named} of 100000");
    }

    #[test]
    fn an_id_of_a_daemon_without_a_node_names_none_even_by_chance() {
        let other = Uuid::from_u128(0x0198_a1b2_c3d4_7000_8000_0000_0000_0001);
        let mut made = [node(7).new_id(), node(8).new_id(), other].into_iter();
        assert_eq!(plain(|| made.next().unwrap()), other);
    }

    #[test]
    fn the_ends_of_ids_differ_as_before() {
        let ids: Vec<Uuid> = (0..10_000).map(|_| node(7).new_id()).collect();
        let ends: std::collections::BTreeSet<&[u8]> = ids.iter().map(|id| &id.as_bytes()[12..]).collect();
        assert!(ends.len() > 9_900, "{} of 10000", ends.len());
    }

    #[test]
    fn the_counter_keeps_its_order_and_its_bits() {
        let time = 0x0198_a1b2_c3d4_u128 << 80;
        let counted = |counter: u128| {
            let version_and_variant = (7 << 76) | (2 << 62);
            // Twelve bits of the counter are before the variant, and thirty after it.
            let id = time | version_and_variant | ((counter >> 30) << 64) | ((counter & 0x3FFF_FFFF) << 32);
            node(0x1234).named_in(Uuid::from_u128(id | 0xFFFF_FFFF)).into_bytes()
        };
        let counters = [0, 1, (1 << 24) - 1, 1 << 24, (1 << 30) - 1, 1 << 30, 1 << 40, (1 << 42) - 1];
        assert!(counters.map(counted).is_sorted_by(|one, next| one < next));
        for counter in counters {
            let id = counted(counter);
            let read = [(id[8] >> 4) & 3, id[9], id[10], id[13], id[14], id[15]];
            let read = read.iter().fold(0, |read, byte| (read << 8) | u128::from(*byte));
            assert_eq!(read, counter);
        }
    }

    #[test]
    fn every_client_reads_the_same_nodes() {
        let vectors: serde_json::Value = serde_json::from_str(VECTORS).unwrap();
        let ids = vectors["ids"].as_object().unwrap();
        assert!(ids.len() > 10);
        for (id, named) in ids {
            let read = NodeId::of_text(id).map(|node| u64::from(node.get()));
            assert_eq!(read, named.as_u64(), "{id}");
        }
    }

    #[test]
    fn a_changed_time_or_node_is_no_longer_a_name() {
        let id = node(300).new_id().into_bytes();
        for bit in (0..48).chain(52..64).chain(68..72).chain(88..104) {
            let mut changed = id;
            changed[bit / 8] ^= 0x80 >> (bit % 8);
            assert_eq!(NodeId::of(Uuid::from_bytes(changed)), None, "bit {bit}");
        }
        assert_eq!(NodeId::of(Uuid::new_v4()), None);
        for text in ["", "7", "not an id"] {
            assert_eq!(NodeId::of_text(text), None);
        }
    }

    #[test]
    fn the_check_value_is_the_published_one() {
        // CRC-16 begun at 0xFFFF has 0x29B1 for "123456789", the check string of such lists; eight bytes of it here.
        let id = *b"123456..........";
        assert_eq!(check_value(&id, u16::from_be_bytes(*b"78")), 0xA12B);
    }

    #[test]
    fn the_number_of_a_node_has_one_form() {
        assert_eq!("65535".parse(), Ok(node(65_535)));
        for text in ["", "0", "00", "07", "65536", "100000", "+7", "-7", " 7", "7 ", "seven", "٧"] {
            assert_eq!(text.parse::<NodeId>(), Err(NotANode), "{text:?}");
        }
    }
}
