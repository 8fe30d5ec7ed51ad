//! Connections by address: their number, their rate, and the connections that are proven.
//!
//! A connection is unproven until its client has shown a valid credential. If there is no slot for a new connection,
//! it takes that of the oldest unproven one. So clients that connect and send nothing lock out only each other.
//!
//! A listener may have spare slots beyond these limits, for connections that are short and ask for little, such as a balancer's checks of
//! health. A connection in a spare slot is never proven.
//!
//! Addresses of one IPv6 network of 64 bits count as one, because a client has as many of them as it likes.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::Occurrences;

/// Largest number of addresses that are known at the same time.
const KNOWN: usize = 4_096;
/// Time of silence after which an address has its whole budget again.
const REFILL: Duration = Duration::from_secs(1);

/// Largest numbers of connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub connections: usize,
    pub per_address: usize,
    /// New connections of an address within a second.
    pub per_second: u32,
    /// Spare slots of an address, beyond all of these limits. All addresses together have [`ALL_SPARE`] times as many.
    pub spare: u32,
}

/// Addresses that can have all of their spare slots at the same time.
const ALL_SPARE: u32 = 4;

/// The addresses that have connections, or had some lately.
#[derive(Clone)]
pub struct Addresses(Arc<Mutex<Table>>);

struct Table {
    limits: ConnectionLimits,
    /// Connections in ordinary slots, and in spare ones.
    open: usize,
    spare: u32,
    known: HashMap<IpAddr, Known>,
    /// Unproven connections by their numbers, which ascend.
    unproven: BTreeMap<u64, Unproven>,
    next: u64,
    turned_away: Occurrences,
}

struct Known {
    open: usize,
    spare: u32,
    /// New connections that the address may still open, in thousandths, and those that it may open beyond them in spare slots.
    ///
    /// They are counted apart. Otherwise the checks of an address that never stops to connect would take all that comes back, and none of its
    /// connections would get an ordinary slot.
    budget: u64,
    spare_budget: u64,
    at: Instant,
}

struct Unproven {
    address: IpAddr,
    is_spare: bool,
    evicted: CancellationToken,
}

/// Room for a new connection.
enum Room {
    Free,
    /// The slot of an unproven connection, by its number.
    Of(u64),
}

/// A connection's slot among those of its address. Dropping it frees the slot.
pub struct Slot {
    addresses: Addresses,
    address: IpAddr,
    number: u64,
    is_spare: bool,
    evicted: CancellationToken,
}

impl Addresses {
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        let table = Table {
            limits,
            open: 0,
            spare: 0,
            known: HashMap::new(),
            unproven: BTreeMap::new(),
            next: 0,
            turned_away: Occurrences::new(),
        };
        Self(Arc::new(Mutex::new(table)))
    }

    /// Returns a slot for one more connection, if there is one or another connection can be evicted for it.
    #[must_use]
    pub fn enter(&self, address: IpAddr, now: Instant) -> Option<Slot> {
        let address = network(address);
        let mut table = self.0.lock();
        if let Some((number, is_spare, evicted)) = table.enter(address, now) {
            return Some(Slot { addresses: self.clone(), address, number, is_spare, evicted });
        }
        if let Some(count) = table.turned_away.add(now) {
            tracing::warn!(%address, count, "connections were refused: too many at once, or too many in a second");
        }
        None
    }
}

impl Table {
    fn enter(&mut self, address: IpAddr, now: Instant) -> Option<(u64, bool, CancellationToken)> {
        if self.known.len() >= KNOWN && !self.known.contains_key(&address) {
            self.forget(now)?;
        }
        let [most, most_spare] =
            [self.limits.per_second, self.limits.spare].map(|in_a_second| u64::from(in_a_second) * 1_000);
        let new = Known { open: 0, spare: 0, budget: most, spare_budget: most_spare, at: now };
        let known = self.known.entry(address).or_insert(new);
        let since = u64::try_from(now.duration_since(known.at).as_millis()).unwrap_or(u64::MAX);
        // Time too short for a thousandth stays on the account.
        if since > 0 {
            let refilled =
                |budget: u64, most: u64| most.min(budget.saturating_add(since.saturating_mul(most / 1_000)));
            known.budget = refilled(known.budget, most);
            known.spare_budget = refilled(known.spare_budget, most_spare);
            known.at = now;
        }
        let (left, spare_left) = (known.budget.checked_sub(1_000), known.spare_budget.checked_sub(1_000));
        let ordinary = left.and_then(|_| self.ordinary(address));
        let (is_spare, room) = if let Some(room) = ordinary {
            (false, room)
        } else {
            left.or(spare_left)?;
            (true, self.beyond(address)?)
        };
        if let Room::Of(number) = room {
            self.evict(number);
        }
        let known = self.known.get_mut(&address)?;
        match (left, spare_left) {
            (Some(left), _) => known.budget = left,
            (None, left) => known.spare_budget = left?,
        }
        if is_spare {
            known.spare += 1;
            self.spare += 1;
        } else {
            known.open += 1;
            self.open += 1;
        }
        let (number, evicted) = (self.next, CancellationToken::new());
        self.next += 1;
        self.unproven.insert(number, Unproven { address, is_spare, evicted: evicted.clone() });
        Some((number, is_spare, evicted))
    }

    /// Returns an ordinary slot. `None`: each connection in one has proven itself.
    fn ordinary(&self, address: IpAddr) -> Option<Room> {
        let open = self.known.get(&address)?.open;
        // An address that has too many gives up one of them.
        if open >= self.limits.per_address {
            self.oldest(|of| !of.is_spare && of.address == address)
        } else if self.open >= self.limits.connections {
            self.oldest(|of| !of.is_spare)
        } else {
            Some(Room::Free)
        }
    }

    /// Returns a spare slot. `None`: the listener has none.
    fn beyond(&self, address: IpAddr) -> Option<Room> {
        let spare = self.known.get(&address)?.spare;
        if spare >= self.limits.spare {
            self.oldest(|of| of.is_spare && of.address == address)
        } else if self.spare >= self.limits.spare.saturating_mul(ALL_SPARE) {
            self.oldest(|of| of.is_spare)
        } else {
            Some(Room::Free)
        }
    }

    /// Makes one more entry available for an address.
    ///
    /// Removes the addresses that have their whole budget again, or else the one without connections that was silent for
    /// longest: a client with many networks must not keep others out. `None` if every address has a connection.
    fn forget(&mut self, now: Instant) -> Option<()> {
        self.known.retain(|_, known| !known.is_idle() || now.duration_since(known.at) < REFILL);
        if self.known.len() >= KNOWN {
            let idle = self.known.iter().filter(|(_, known)| known.is_idle());
            let address = *idle.min_by_key(|(_, known)| known.at)?.0;
            self.known.remove(&address);
        }
        Some(())
    }

    /// Returns the slot of the oldest unproven connection of those that are meant.
    fn oldest(&self, is_meant: impl Fn(&Unproven) -> bool) -> Option<Room> {
        self.unproven.iter().find(|(_, unproven)| is_meant(unproven)).map(|(number, _)| Room::Of(*number))
    }

    /// Takes the slot of an unproven connection, and notifies it.
    fn evict(&mut self, number: u64) {
        if let Some(Unproven { address, is_spare, evicted }) = self.unproven.remove(&number) {
            evicted.cancel();
            self.leave(address, is_spare);
        }
    }

    fn leave(&mut self, address: IpAddr, is_spare: bool) {
        let known = self.known.get_mut(&address);
        if is_spare {
            self.spare -= 1;
            if let Some(known) = known {
                known.spare -= 1;
            }
        } else {
            self.open -= 1;
            if let Some(known) = known {
                known.open -= 1;
            }
        }
    }
}

impl Known {
    fn is_idle(&self) -> bool {
        self.open == 0 && self.spare == 0
    }
}

impl Slot {
    /// Keeps an ordinary slot for as long as the connection lives: its client has shown a good credential.
    pub fn prove(&self) {
        if !self.is_spare {
            self.addresses.0.lock().unproven.remove(&self.number);
        }
    }

    /// Returns true for a slot beyond the limits of the listener.
    pub fn is_spare(&self) -> bool {
        self.is_spare
    }

    /// Completes when another connection has taken the slot. This one then has to end.
    pub fn evicted(&self) -> WaitForCancellationFutureOwned {
        self.evicted.clone().cancelled_owned()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.addresses.0.lock();
        table.unproven.remove(&self.number);
        // The slot of an evicted connection belongs to another.
        if !self.evicted.is_cancelled() {
            table.leave(self.address, self.is_spare);
        }
    }
}

/// Returns the address, or the network that counts as one.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::time::{Duration, Instant};

    use super::{Addresses, ConnectionLimits, KNOWN, Slot};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const WIDE: ConnectionLimits =
        ConnectionLimits { connections: 1_000_000, per_address: 1_000_000, per_second: 1_000_000, spare: 0 };

    fn proven(slot: Option<Slot>) -> Option<Slot> {
        slot.inspect(Slot::prove)
    }

    fn is_evicted(slot: &Slot) -> bool {
        slot.evicted.is_cancelled()
    }

    #[test]
    fn connections_are_bounded_for_each_address_separately() {
        let addresses = Addresses::new(ConnectionLimits { connections: 5, per_address: 2, ..WIDE });
        let now = Instant::now();
        let enter = |text: &str| proven(addresses.enter(address(text), now));
        let (first, _second) = (enter("10.0.0.1").unwrap(), enter("10.0.0.1").unwrap());
        assert!(enter("10.0.0.1").is_none());
        let _others = [enter("2001:db8::1").unwrap(), enter("2001:db8::ffff:1").unwrap()];
        assert!(enter("2001:db8::2").is_none(), "one network of 64 bits is one address");
        let _last = enter("10.0.0.2").unwrap();
        assert!(enter("10.0.0.3").is_none(), "there are five in all");
        drop(first);
        assert!(enter("10.0.0.1").is_some());
    }

    #[test]
    fn new_connections_of_an_address_are_bounded_a_second() {
        let addresses = Addresses::new(ConnectionLimits { per_second: 10, ..WIDE });
        let start = Instant::now();
        let opened = |at: Duration| {
            (0..100).filter(|_| addresses.enter(address("10.0.0.1"), start + at).is_some()).count()
        };
        assert_eq!(opened(Duration::ZERO), 10);
        assert_eq!(opened(Duration::from_millis(99)), 0);
        assert_eq!(opened(Duration::from_millis(250)), 2);
        assert_eq!(opened(Duration::from_secs(60)), 10);
        assert!(addresses.enter(address("10.0.0.2"), start).is_some());
    }

    #[test]
    fn endless_addresses_use_no_memory_and_connected_ones_are_not_forgotten() {
        let addresses = Addresses::new(ConnectionLimits { per_address: 1, ..WIDE });
        let start = Instant::now();
        let _kept = proven(addresses.enter(address("192.0.2.1"), start)).unwrap();
        for number in 0..3 * u32::try_from(KNOWN).unwrap() {
            let at = start + Duration::from_millis(number.into());
            let _ = addresses.enter(Ipv4Addr::from_bits(number).into(), at);
        }
        assert!(addresses.0.lock().known.len() <= KNOWN);
        assert!(addresses.enter(address("192.0.2.1"), start + Duration::from_secs(60)).is_none());
    }

    #[test]
    fn r4_endless_networks_lock_out_no_other_address() {
        let addresses = Addresses::new(WIDE);
        let now = Instant::now();
        // Each network of a /48 connects once, all in one moment.
        for number in 0..2 * u128::try_from(KNOWN).unwrap() {
            let network = Ipv6Addr::from_bits((0x2001_0db8 << 96) | (number << 64));
            assert!(addresses.enter(network.into(), now).is_some());
        }
        assert!(addresses.enter(address("192.0.2.1"), now).is_some());
        assert!(addresses.0.lock().known.len() <= KNOWN);
    }

    #[test]
    fn r2_the_oldest_unproven_connection_is_evicted_first() {
        let limits = ConnectionLimits { connections: 4, per_address: 3, ..WIDE };
        let addresses = Addresses::new(limits);
        let now = Instant::now();
        let enter = |text: &str| addresses.enter(address(text), now);
        let (good, other) = (proven(enter("10.0.0.1")).unwrap(), enter("10.0.0.2").unwrap());
        let silent = [enter("10.0.0.1").unwrap(), enter("10.0.0.1").unwrap()];
        // An address that has all of its own gives one of its own, although another's is older.
        let third = enter("10.0.0.1").unwrap();
        assert_eq!([&good, &other, &silent[0], &silent[1]].map(is_evicted), [false, false, true, false]);
        // One that has fewer takes the oldest of all.
        let new = proven(enter("10.0.0.3")).unwrap();
        assert_eq!([&good, &other, &silent[1], &third].map(is_evicted), [false, true, false, false]);
        silent[1].prove();
        third.prove();
        assert!(enter("10.0.0.4").is_none(), "each has proven something");
        assert_eq!([&good, &silent[1], &third, &new].map(is_evicted), [false; 4]);
        // What was evicted has nothing left to give back.
        drop((silent, other));
        assert_eq!(addresses.0.lock().open, 3);
        drop((good, third, new));
        let table = addresses.0.lock();
        assert_eq!((table.open, table.unproven.len()), (0, 0));
        assert!(table.known.values().all(|known| known.open == 0));
    }

    #[test]
    fn spare_slots_are_beyond_the_limits_and_never_proven() {
        let limits = ConnectionLimits { connections: 3, per_address: 2, spare: 2, ..WIDE };
        let addresses = Addresses::new(limits);
        let now = Instant::now();
        let enter = |text: &str| addresses.enter(address(text), now).unwrap();
        let mut held = [enter("10.0.0.1"), enter("10.0.0.1")];
        // As long as one is unproven, another takes its slot.
        held[0].prove();
        held[1] = enter("10.0.0.1");
        held[1].prove();
        assert!(held.iter().all(|slot| !slot.is_spare()));
        let spare = [enter("10.0.0.1"), enter("10.0.0.1")];
        spare.iter().for_each(Slot::prove);
        let third = enter("10.0.0.1");
        assert!(spare.iter().chain([&third]).all(Slot::is_spare));
        assert_eq!([&spare[0], &spare[1], &third].map(is_evicted), [true, false, false]);
        // Other addresses have their own, within the bound of all.
        let last = enter("10.0.0.2");
        last.prove();
        let others: Vec<Slot> =
            (3..13).flat_map(|number| [(); 2].map(|()| enter(&format!("10.0.0.{number}")))).collect();
        assert!(!last.is_spare() && others.iter().all(Slot::is_spare));
        assert_eq!(others.iter().filter(|slot| !is_evicted(slot)).count(), 8, "four times two");
        assert!(is_evicted(&third) && is_evicted(&spare[1]) && !held.iter().any(is_evicted));
        // An ordinary slot that is free goes first.
        drop(held);
        assert!(!enter("10.0.0.1").is_spare());
        drop((spare, third, last, others));
        let table = addresses.0.lock();
        assert_eq!((table.open, table.spare, table.unproven.len()), (0, 0, 0));
        assert!(table.known.values().all(super::Known::is_idle));
    }

    #[test]
    fn an_address_that_connects_too_often_has_its_spare_slots() {
        let limits = ConnectionLimits { per_second: 10, spare: 2, ..WIDE };
        let addresses = Addresses::new(limits);
        let start = Instant::now();
        let opened = |millis: u64| {
            let at = start + Duration::from_millis(millis);
            let opened = (0..100).filter_map(|_| addresses.enter(address("10.0.0.1"), at));
            let spare: Vec<bool> = opened.map(|slot| slot.is_spare()).collect();
            (spare.iter().filter(|is_spare| !**is_spare).count(), spare.len())
        };
        assert_eq!(opened(0), (10, 12));
        assert_eq!(opened(100), (1, 1));
        assert_eq!(opened(1_100), (10, 12));
        assert_eq!(opened(10_000), (10, 12));
    }

    #[test]
    fn an_address_that_never_stops_to_connect_has_its_ordinary_slots_too() {
        let addresses = Addresses::new(ConnectionLimits { per_second: 10, spare: 2, ..WIDE });
        let start = Instant::now();
        let moments = (0..10_000_u64).step_by(10).map(|millis| start + Duration::from_millis(millis));
        let opened = moments.filter_map(|at| addresses.enter(address("10.0.0.1"), at));
        let spare: Vec<bool> = opened.map(|slot| slot.is_spare()).collect();
        let checks = spare.iter().filter(|is_spare| **is_spare).count();
        assert!((105..=110).contains(&(spare.len() - checks)) && (20..=22).contains(&checks), "{checks}");
    }
}
