//! Turns of tenants to have runs measured.
//!
//! A measure takes time for each file, and an agent decides how many there are. So the next turn goes to the tenant that has the fewest
//! measures under way, and of these to the one whose last measure began longest ago: a tenant waits for one measure of each other tenant at
//! most, whatever their files are.

use std::collections::BTreeMap;

/// Tenants whose last turn is remembered.
const REMEMBERED: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Number of measures under way.
    under_way: BTreeMap<String, usize>,
    /// Number of the last measure that began.
    last: BTreeMap<String, u64>,
    begun: u64,
}

impl Turns {
    /// Returns the position of the tenant whose turn is next, if one of them has fewer than `most` measures under way.
    ///
    /// A tenant may be among them several times. Its first position counts.
    pub(crate) fn next<'t>(&self, tenants: impl Iterator<Item = &'t str>, most: usize) -> Option<usize> {
        let under_way = |tenant: &str| self.under_way.get(tenant).copied().unwrap_or_default();
        // A tenant that never had a turn comes first.
        let last = |tenant: &str| self.last.get(tenant).copied();
        let free = tenants.enumerate().filter(|(_, tenant)| under_way(tenant) < most);
        let next = free.min_by_key(|(position, tenant)| (under_way(tenant), last(tenant), *position));
        next.map(|(position, _)| position)
    }

    /// Notes that a measure of a tenant begins.
    pub(crate) fn begin(&mut self, tenant: &str) {
        self.begun += 1;
        *self.under_way.entry(tenant.to_owned()).or_default() += 1;
        self.last.insert(tenant.to_owned(), self.begun);
        if self.last.len() > REMEMBERED {
            let oldest = self.last.iter().min_by_key(|(_, began)| **began).map(|(tenant, _)| tenant.clone());
            oldest.and_then(|tenant| self.last.remove(&tenant));
        }
    }

    /// Notes that a measure of a tenant is over.
    pub(crate) fn end(&mut self, tenant: &str) {
        if let Some(under_way) = self.under_way.get_mut(tenant) {
            *under_way -= 1;
            if *under_way == 0 {
                self.under_way.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_large_trees_has_its_turns_and_no_more() {
        let mut turns = Turns::default();
        let due = ["greedy", "greedy", "greedy", "modest"];
        let next = |turns: &Turns| turns.next(due.into_iter(), 2);
        assert_eq!(next(&turns), Some(0));
        turns.begin("greedy");
        assert_eq!(next(&turns), Some(3), "the other has none under way");
        turns.begin("modest");
        assert_eq!(next(&turns), Some(0), "a second one, as nobody else waits with fewer");
        turns.begin("greedy");
        assert_eq!(turns.next(["greedy"].into_iter(), 2), None);
        turns.end("modest");
        assert_eq!(next(&turns), Some(3));
        turns.end("greedy");
        turns.end("greedy");
        // Without any under way, the one that had its turn earlier.
        assert_eq!(turns.next(["greedy", "modest", "new"].into_iter(), 2), Some(2));
        assert_eq!(turns.next(["greedy", "modest"].into_iter(), 2), Some(1));
    }

    #[test]
    fn each_tenant_waits_for_one_measure_of_each_other_at_most() {
        let (mut turns, tenants) = (Turns::default(), ["a", "b", "c", "d"]);
        let order: Vec<&str> = (0..8)
            .map(|_| {
                let next = tenants[turns.next(tenants.into_iter(), 1).unwrap()];
                turns.begin(next);
                turns.end(next);
                next
            })
            .collect();
        assert_eq!(order, [tenants, tenants].concat());
    }

    #[test]
    fn tenants_without_a_measure_are_forgotten() {
        let mut turns = Turns::default();
        for number in 0..2 * REMEMBERED {
            let tenant = number.to_string();
            turns.begin(&tenant);
            turns.end(&tenant);
        }
        assert_eq!((turns.last.len(), turns.under_way.len()), (REMEMBERED, 0));
    }
}
