//! The addresses that names have within a run.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::name::HostName;
use crate::range::check;
use crate::rules::Source;

/// Addresses of a block of 256 that are used: neither the first nor the last.
const OF_EACH: u32 = 254;
const MINUTE: Duration = Duration::from_secs(60);

/// Names and their addresses, for the life of one run. It only grows.
///
/// The first address is that of the resolver. Addresses that end with `.0` or `.255` are left out, because libraries take them for
/// those of a network or a broadcast. The serialized form is the block and the names, in the order of their addresses.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Pool {
    block: Ipv4Net,
    names: Vec<HostName>,
    numbers: HashMap<HostName, u32>,
    /// When the wildcards' names of the last minute came, in the caller's clock. It is not stored.
    recent: VecDeque<Duration>,
}

impl Pool {
    /// Most names of a run.
    pub const MOST: usize = 65_000;
    /// The block that a run has if the configuration names none. Libraries call it global, and it is never routed from a run.
    pub const DEFAULT_BLOCK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(11, 200, 0, 0), 16);

    /// Makes an empty pool in a block that libraries call global, or in the loopback.
    pub fn new(block: Ipv4Net) -> Result<Self, BadPool> {
        if block.trunc() != block || !(8..=24).contains(&block.prefix_len()) {
            return Err(BadPool::Block);
        }
        let ends = [block.network(), block.broadcast()];
        if !ends.iter().all(|end| end.is_loopback() || check((*end).into(), &[], None).is_ok()) {
            return Err(BadPool::Range);
        }
        Ok(Self { block, names: Vec::new(), numbers: HashMap::new(), recent: VecDeque::new() })
    }

    /// Returns the address of the run's resolver, which no name has.
    pub fn resolver(&self) -> Ipv4Addr {
        self.address(0)
    }

    pub fn block(&self) -> Ipv4Net {
        self.block
    }

    /// Returns the address of a name, and gives it one first if it has none.
    ///
    /// `names_per_minute` bounds new names of wildcards. `now` is any clock that does not go back.
    pub fn assign(
        &mut self,
        name: &HostName,
        source: Source,
        names_per_minute: u32,
        now: Duration,
    ) -> Result<Ipv4Addr, NoAddress> {
        if let Some(address) = self.address_of(name) {
            return Ok(address);
        }
        if self.names.len() >= self.capacity() {
            return Err(NoAddress::Full);
        }
        if source == Source::Wildcard {
            self.count(names_per_minute, now)?;
        }
        Ok(self.push(name.clone()))
    }

    /// Returns the address of a name that has one.
    pub fn address_of(&self, name: &HostName) -> Option<Ipv4Addr> {
        self.numbers.get(name).map(|number| self.address(*number))
    }

    /// Returns the name that has an address.
    pub fn name_of(&self, address: Ipv4Addr) -> Option<&HostName> {
        let offset = u32::from(address).checked_sub(u32::from(self.block.network()))?;
        let last = offset % 256;
        let number = (1..=OF_EACH).contains(&last).then(|| offset / 256 * OF_EACH + last - 1)?;
        self.names.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    /// Returns the names in the order of their addresses.
    pub fn names(&self) -> &[HostName] {
        &self.names
    }

    fn capacity(&self) -> usize {
        let blocks = 1_usize << (24 - self.block.prefix_len().min(24));
        (blocks * OF_EACH as usize - 1).min(Self::MOST)
    }

    fn count(&mut self, most: u32, now: Duration) -> Result<(), NoAddress> {
        while self.recent.front().is_some_and(|then| now.saturating_sub(*then) >= MINUTE) {
            self.recent.pop_front();
        }
        if self.recent.len() >= most as usize {
            return Err(NoAddress::TooManyNew);
        }
        self.recent.push_back(now);
        Ok(())
    }

    fn push(&mut self, name: HostName) -> Ipv4Addr {
        self.names.push(name.clone());
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name, number);
        self.address(number)
    }

    /// Returns the address with a number. The resolver has 0, the first name 1.
    fn address(&self, number: u32) -> Ipv4Addr {
        let offset = number / OF_EACH * 256 + number % OF_EACH + 1;
        Ipv4Addr::from(u32::from(self.block.network()).saturating_add(offset))
    }
}

/// The serialized form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    block: Ipv4Net,
    names: Vec<HostName>,
}

impl TryFrom<Stored> for Pool {
    type Error = BadPool;

    fn try_from(stored: Stored) -> Result<Self, BadPool> {
        let mut pool = Self::new(stored.block)?;
        if stored.names.len() > pool.capacity() {
            return Err(BadPool::Names);
        }
        for name in stored.names {
            if pool.address_of(&name).is_some() {
                return Err(BadPool::Twice(name));
            }
            pool.push(name);
        }
        Ok(pool)
    }
}

impl From<Pool> for Stored {
    fn from(pool: Pool) -> Self {
        Self { block: pool.block, names: pool.names }
    }
}

/// A block or a stored pool that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPool {
    #[error("the block for names must be a network of IPv4 from /8 to /24, such as {}", Pool::DEFAULT_BLOCK)]
    Block,
    #[error(
        "libraries do not call the block for names global, and refuse its addresses; use one such as {}",
        Pool::DEFAULT_BLOCK
    )]
    Range,
    #[error("the stored names are more than the block has addresses")]
    Names,
    #[error("the stored name {0} appears twice")]
    Twice(HostName),
}

/// A name that gets no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    #[error("the run has used all addresses for names")]
    Full,
    #[error("the run has asked for too many new names in a minute")]
    TooManyNew,
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
