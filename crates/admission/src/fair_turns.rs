//! Turns for costly work, shared out evenly among clients.
//!
//! A free turn goes to the waiting client that has the fewest turns, and of one client to the request that came first. So a client with many
//! requests delays its own, and one with a single request waits for one turn to end at most, however long the line is.
//!
//! A [`FairTurn`] is in the table from the moment at which it waits until it is dropped, and leaves it in no other way.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Time for which a request waits for its turn.
const WAIT: Duration = Duration::from_secs(120);

/// Turns of all clients.
#[derive(Debug)]
pub struct FairTurns(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    free: usize,
    /// Number of turns that each client has.
    taken: BTreeMap<String, usize>,
    /// Requests that wait, by the number of their arrival.
    line: BTreeMap<u64, Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    client: String,
    wake: oneshot::Sender<()>,
}

/// A turn, or a place in the line for one, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct FairTurn {
    table: Arc<Mutex<Table>>,
    client: String,
    /// Number in the line, if it had to wait.
    number: Option<u64>,
}

impl Default for FairTurns {
    /// Allows twice the number of processors, and at least eight.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::new((2 * processors).max(8))
    }
}

impl FairTurns {
    /// Returns turns of which `at_once` are taken at the same time.
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(Table { free: at_once, ..Table::default() })))
    }

    /// Waits for a turn of the client, for two minutes. `None`: it came to none.
    pub async fn wait(&self, client: &str) -> Option<FairTurn> {
        let (turn, woken) = self.enter(client);
        if let Some(woken) = woken {
            // A turn that came too late is given back, because `turn` is dropped.
            tokio::time::timeout(WAIT, woken).await.ok()?.ok()?;
        }
        Some(turn)
    }

    fn enter(&self, client: &str) -> (FairTurn, Option<oneshot::Receiver<()>>) {
        let mut table = self.0.lock();
        let turn = |number| FairTurn { table: Arc::clone(&self.0), client: client.to_owned(), number };
        // While a turn is free, no request waits.
        if table.free > 0 {
            table.free -= 1;
            table.take(client);
            return (turn(None), None);
        }
        let (wake, woken) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        table.line.insert(number, Waiting { client: client.to_owned(), wake });
        (turn(Some(number)), Some(woken))
    }
}

impl Table {
    fn take(&mut self, client: &str) {
        *self.taken.entry(client.to_owned()).or_default() += 1;
    }

    fn give_back(&mut self, client: &str) {
        if let Some(taken) = self.taken.get_mut(client) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(client);
            }
        }
        let of = |waiting: &Waiting| self.taken.get(&waiting.client).copied().unwrap_or_default();
        let next = self.line.iter().min_by_key(|(number, waiting)| (of(waiting), **number));
        let Some(Waiting { client, wake }) =
            next.map(|(number, _)| *number).and_then(|number| self.line.remove(&number))
        else {
            self.free += 1;
            return;
        };
        self.take(&client);
        // A request that has given up at this moment gives the turn back when it is dropped.
        let _ = wake.send(());
    }
}

impl Drop for FairTurn {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        let has_waited = self.number.and_then(|number| table.line.remove(&number));
        if has_waited.is_none() {
            table.give_back(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Returns true if the request has its turn by now.
    fn has_turn(woken: &mut Option<oneshot::Receiver<()>>) -> bool {
        woken.as_mut().is_none_or(|woken| woken.try_recv().is_ok())
    }

    #[test]
    fn modest_clients_come_before_the_rest_of_a_greedy_one() {
        let turns = FairTurns::new(2);
        let held = [turns.enter("greedy").0, turns.enter("greedy").0];
        let mut greedy: Vec<_> = (0..50).map(|_| turns.enter("greedy")).collect();
        let mut modest = ["a", "b", "c"].map(|client| turns.enter(client));
        let [first, second] = held;
        drop(first);
        assert!(has_turn(&mut modest[0].1) && !has_turn(&mut modest[1].1) && !has_turn(&mut greedy[0].1));
        drop(second);
        assert!(has_turn(&mut greedy[0].1), "first come, first served among those without a turn");
        assert!(!has_turn(&mut modest[1].1));
        let [a, mut b, mut c] = modest;
        drop(a);
        assert!(has_turn(&mut b.1));
        drop(b);
        assert!(has_turn(&mut c.1));
        let mut again = turns.enter("b");
        drop(c);
        assert!(has_turn(&mut again.1) && !has_turn(&mut greedy[1].1), "it came last, and has none");
    }

    #[test]
    fn requests_of_one_client_are_served_in_order_and_none_is_lost() {
        let turns = FairTurns::new(1);
        let now = turns.enter("a");
        let (mut second, third, mut fourth) = (turns.enter("a"), turns.enter("a"), turns.enter("a"));
        drop(third);
        drop(now);
        assert!(has_turn(&mut second.1) && !has_turn(&mut fourth.1));
        drop(second);
        // It is given up in the moment at which its turn came.
        drop(fourth);
        let table = turns.0.lock();
        assert!(table.free == 1 && table.line.is_empty() && table.taken.is_empty(), "{table:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_turn_is_refused_and_does_not_block_others() {
        let turns = FairTurns::new(1);
        let now = turns.wait("a").await.unwrap();
        let began = Instant::now();
        assert!(turns.wait("b").await.is_none());
        assert_eq!(began.elapsed(), WAIT);
        drop(now);
        drop(turns.wait("c").await.unwrap());
        assert_eq!(began.elapsed(), WAIT, "the next one need not wait");
    }

    #[test]
    fn threads_never_have_one_turn_too_many() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let (turns, running) = (FairTurns::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let (turns, running) = (&turns, &running);
                scope.spawn(move || {
                    for round in 0..200 {
                        let (turn, woken) = turns.enter(&format!("client-{}", thread % 4));
                        if (thread + round) % 5 == 0 && woken.is_some() {
                            continue;
                        }
                        if let Some(woken) = woken {
                            woken.blocking_recv().unwrap();
                        }
                        assert!(running.fetch_add(1, Ordering::SeqCst) < 3);
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        let table = turns.0.lock();
        assert!(table.free == 3 && table.line.is_empty() && table.taken.is_empty(), "{table:?}");
    }
}
