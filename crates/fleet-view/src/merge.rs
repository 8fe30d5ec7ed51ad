//! Puts the streams of several nodes into the order of time.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Items of one node that may wait for those of others.
const BUFFERED: usize = 64;

/// An item that waited so many times the patience comes first.
const OVERDUE: u32 = 10;

/// Moment by which items are ordered.
pub(crate) type Moment = (i64, i32);

/// Something that a node sends.
pub(crate) enum Sent<T> {
    /// An item, its moment, and when it came. It waits from then on, also for others of its node.
    Item(Moment, Instant, T),
    /// The node is not there. Until its next item, no item of another node waits for it.
    Lost,
}

/// Streams of several nodes.
pub(crate) struct Merge<T> {
    nodes: Vec<Node<T>>,
    /// Time that an item waits for earlier ones of nodes that send nothing. `None`: until they send, or end.
    ///
    /// After ten times as much it no longer waits for nodes that send earlier ones, either. So a node that claims wrong
    /// times does not hold up the others.
    patience: Option<Duration>,
}

struct Node<T> {
    sent: mpsc::Receiver<Sent<T>>,
    head: Option<Head<T>>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Awaited,
    Lost,
    Ended,
}

struct Head<T> {
    moment: Moment,
    came: Instant,
    item: T,
}

impl<T> Merge<T> {
    /// Returns the merged stream, and the way to send for each of so many nodes.
    pub(crate) fn new(nodes: usize, patience: Option<Duration>) -> (Self, Vec<mpsc::Sender<Sent<T>>>) {
        let (senders, nodes) = (0..nodes)
            .map(|_| {
                let (sender, sent) = mpsc::channel(BUFFERED);
                (sender, Node { sent, head: None, state: State::Awaited })
            })
            .unzip();
        (Self { nodes, patience }, senders)
    }

    /// Returns the next item. `None` when all nodes have ended.
    pub(crate) async fn next(&mut self) -> Option<T> {
        loop {
            let first = self.first();
            let is_missing = |node: &Node<T>| node.head.is_none() && node.state == State::Awaited;
            let waits = self.nodes.iter().any(is_missing);
            let Some(first) = first else {
                if self.nodes.iter().all(|node| node.state == State::Ended) {
                    return None;
                }
                self.filled().await;
                continue;
            };
            let came = self.nodes.iter().filter_map(|node| Some(node.head.as_ref()?.came)).min();
            let until = self.patience.zip(came).map(|(patience, came)| came + patience);
            let is_complete = match until {
                _ if !waits => true,
                Some(until) => timeout_at(until, self.filled()).await.is_err(),
                None => {
                    self.filled().await;
                    false
                }
            };
            if is_complete {
                return self.nodes[first].head.take().map(|head| head.item);
            }
        }
    }

    /// Returns the node that has the earliest item, or the one that has waited too long.
    fn first(&self) -> Option<usize> {
        let overdue = self.patience.and_then(|patience| {
            let came = |(index, node): (usize, &Node<T>)| Some((node.head.as_ref()?.came, index));
            let (came, index) = self.nodes.iter().enumerate().filter_map(came).min()?;
            (came.elapsed() >= OVERDUE * patience).then_some(index)
        });
        if overdue.is_some() {
            return overdue;
        }
        let heads = self.nodes.iter().enumerate();
        let heads = heads.filter_map(|(index, node)| Some((node.head.as_ref()?.moment, index)));
        heads.min().map(|(_, index)| index)
    }

    /// Waits until a node without an item sends one, is lost or ends.
    async fn filled(&mut self) {
        poll_fn(|context| {
            let mut has_changed = false;
            for node in &mut self.nodes {
                if node.head.is_some() || node.state == State::Ended {
                    continue;
                }
                let Poll::Ready(sent) = node.sent.poll_recv(context) else { continue };
                has_changed = true;
                match sent {
                    Some(Sent::Item(moment, came, item)) => {
                        node.head = Some(Head { moment, came, item });
                        node.state = State::Awaited;
                    }
                    Some(Sent::Lost) => node.state = State::Lost,
                    None => node.state = State::Ended,
                }
            }
            if has_changed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn send(sender: &mpsc::Sender<Sent<i64>>, moments: &[i64]) {
        for moment in moments {
            assert!(sender.send(Sent::Item((*moment, 0), Instant::now(), *moment)).await.is_ok());
        }
    }

    #[tokio::test]
    async fn whole_streams_are_in_the_order_of_time() {
        let (mut merge, mut senders) = Merge::new(3, None);
        send(&senders[0], &[1, 4, 9]).await;
        send(&senders[1], &[2, 3, 10]).await;
        let third = senders.pop().unwrap();
        drop(senders);
        let late = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            send(&third, &[0, 5]).await;
        });
        let mut all = Vec::new();
        while let Some(item) = merge.next().await {
            all.push(item);
        }
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 9, 10]);
        late.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_waits_for_others_only_so_long() {
        let patience = Duration::from_millis(500);
        let (mut merge, senders) = Merge::new(2, Some(patience));
        send(&senders[0], &[5]).await;
        let began = Instant::now();
        assert_eq!(merge.next().await, Some(5));
        let waited = began.elapsed();
        assert!(waited >= patience && waited < 2 * patience, "{waited:?}");
        // Later than the one before, and not lost.
        send(&senders[1], &[3, 4]).await;
        send(&senders[0], &[6]).await;
        assert_eq!([merge.next().await, merge.next().await], [Some(3), Some(4)]);
        assert_eq!(merge.next().await, Some(6));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_waits_for_a_lost_node_until_it_is_back() {
        let (mut merge, mut senders) = Merge::new(2, Some(Duration::from_secs(60)));
        assert!(senders[1].send(Sent::Lost).await.is_ok());
        send(&senders[0], &[5, 9]).await;
        let began = Instant::now();
        assert_eq!(merge.next().await, Some(5));
        assert_eq!(began.elapsed(), Duration::ZERO);
        send(&senders[1], &[7]).await;
        assert_eq!(merge.next().await, Some(7));
        senders.pop();
        assert_eq!(merge.next().await, Some(9));
        senders.pop();
        assert_eq!(merge.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_always_sends_earlier_items_does_not_hold_up_another() {
        let patience = Duration::from_millis(100);
        let (mut merge, senders) = Merge::new(2, Some(patience));
        send(&senders[1], &[9, 10, 11]).await;
        for _ in 0..OVERDUE {
            send(&senders[0], &[1]).await;
            assert_eq!(merge.next().await, Some(1));
            tokio::time::advance(patience).await;
        }
        send(&senders[0], &[1]).await;
        // All of them have waited.
        assert_eq!([merge.next().await, merge.next().await, merge.next().await], [9, 10, 11].map(Some));
    }

    #[tokio::test]
    async fn the_order_of_one_node_is_kept_whatever_its_clock_says() {
        let (mut merge, senders) = Merge::new(1, None);
        send(&senders[0], &[5, 2, 3]).await;
        drop(senders);
        assert_eq!([merge.next().await, merge.next().await, merge.next().await], [Some(5), Some(2), Some(3)]);
    }

    #[tokio::test]
    async fn a_node_that_sends_more_than_is_read_waits() {
        let (_merge, senders) = Merge::new(1, None);
        send(&senders[0], &[0; BUFFERED]).await;
        assert!(senders[0].try_send(Sent::Item((0, 0), Instant::now(), 0)).is_err());
    }
}
