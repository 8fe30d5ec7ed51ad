//! How many connections each address has, and how many it opens in a second. Addresses of one IPv6 network of 64 bits count
//! as one: a client has as many of them as it likes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Addresses that are known at the same time.
const KNOWN: usize = 4_096;
/// An address that is silent for so long has its whole budget again.
const REFILL: Duration = Duration::from_secs(1);
/// Between two lines of the log about connections that were turned away.
const SAID: Duration = Duration::from_secs(60);

/// How much there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    pub(super) connections: usize,
    pub(super) per_address: usize,
    /// New connections of an address within a second.
    pub(super) per_second: u32,
}

/// The addresses that have connections, or had some lately.
#[derive(Clone)]
pub(super) struct Addresses(Arc<Mutex<Table>>);

struct Table {
    most: Most,
    open: usize,
    known: HashMap<IpAddr, Known>,
    turned_away: u64,
    said: Option<Instant>,
}

struct Known {
    open: usize,
    /// New connections that it may still open, in thousandths.
    budget: u64,
    at: Instant,
}

/// A connection's place among those of its address; given back when it is dropped.
pub(super) struct Place {
    addresses: Addresses,
    address: IpAddr,
}

impl Addresses {
    pub(super) fn new(most: Most) -> Self {
        let table = Table { most, open: 0, known: HashMap::new(), turned_away: 0, said: None };
        Self(Arc::new(Mutex::new(table)))
    }

    /// A place for one more connection, if there is one.
    pub(super) fn enter(&self, address: IpAddr, now: Instant) -> Option<Place> {
        let address = network(address);
        let mut table = self.lock();
        if table.enter(address, now) {
            return Some(Place { addresses: self.clone(), address });
        }
        table.turned_away += 1;
        if table.said.is_none_or(|said| now.duration_since(said) >= SAID) {
            table.said = Some(now);
            let count = std::mem::take(&mut table.turned_away);
            tracing::warn!(%address, count, "connections were turned away: too many at once, or too fast");
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn enter(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.known.len() >= KNOWN && !self.known.contains_key(&address) {
            self.known.retain(|_, known| known.open > 0 || now.duration_since(known.at) < REFILL);
        }
        if self.open >= self.most.connections
            || self.known.len() >= KNOWN && !self.known.contains_key(&address)
        {
            return false;
        }
        let whole = u64::from(self.most.per_second) * 1_000;
        let known = self.known.entry(address).or_insert(Known { open: 0, budget: whole, at: now });
        let since = u64::try_from(now.duration_since(known.at).as_millis()).unwrap_or(u64::MAX);
        let refilled = since.saturating_mul(self.most.per_second.into());
        // Time that was too short for a thousandth goes on counting.
        if refilled > 0 {
            known.budget = whole.min(known.budget.saturating_add(refilled));
            known.at = now;
        }
        if known.budget < 1_000 || known.open >= self.most.per_address {
            return false;
        }
        known.budget -= 1_000;
        known.open += 1;
        self.open += 1;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.addresses.lock();
        table.open -= 1;
        if let Some(known) = table.known.get_mut(&self.address) {
            known.open -= 1;
        }
    }
}

/// The address, or the network that counts as one.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::{Duration, Instant};

    use super::{Addresses, KNOWN, Most};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const WIDE: Most = Most { connections: 1_000_000, per_address: 1_000_000, per_second: 1_000_000 };

    #[test]
    fn an_address_has_so_many_connections_and_others_have_theirs() {
        let addresses = Addresses::new(Most { connections: 5, per_address: 2, ..WIDE });
        let now = Instant::now();
        let enter = |text: &str| addresses.enter(address(text), now);
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
    fn an_address_opens_so_many_in_a_second() {
        let addresses = Addresses::new(Most { per_second: 10, ..WIDE });
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
    fn addresses_without_end_take_no_memory_and_none_that_has_a_connection_is_forgotten() {
        let addresses = Addresses::new(Most { per_address: 1, ..WIDE });
        let start = Instant::now();
        let _kept = addresses.enter(address("192.0.2.1"), start).unwrap();
        for number in 0..3 * u32::try_from(KNOWN).unwrap() {
            let at = start + Duration::from_millis(number.into());
            let _ = addresses.enter(Ipv4Addr::from_bits(number).into(), at);
        }
        assert!(addresses.lock().known.len() <= KNOWN);
        assert!(addresses.enter(address("192.0.2.1"), start + Duration::from_secs(60)).is_none());
    }
}
