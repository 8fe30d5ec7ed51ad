//! Follows all nodes at the same time, each from where it was.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use cofferdam_client::NodeId;
use futures_util::future::{Either, join_all, select};
use futures_util::stream::LocalBoxStream;
use futures_util::{Stream, StreamExt as _};
use presentation::exit::Exit;
use presentation::failure::Failure;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

use crate::fleet::{Fleet, Node, Reached, none_answers};
use crate::merge::{Merge, Moment, Sent};
use crate::position::{Mark, Position};

/// Time before a lost node is tried again, which doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Time within which a stream begins.
const OPENED: Duration = Duration::from_secs(30);
/// Longest silence of a stream that is not followed. Its node may read a long log of which it sends nothing, for so long.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// Kind of items that nodes send.
pub(crate) trait Feed {
    type Item;

    /// Opens the stream of a node, from a place in its log.
    async fn open(&self, node: &Reached, after: Option<Mark>) -> Result<Opened<Self::Item>, Failure>;
}

/// Stream of one node.
pub(crate) struct Opened<T> {
    pub(crate) items: LocalBoxStream<'static, Result<Placed<T>, Status>>,
    /// Reason why the stream does not begin where the reader was.
    pub(crate) warning: Option<&'static str>,
}

/// An item, its moment, and the place after it.
pub(crate) struct Placed<T> {
    pub(crate) moment: Moment,
    pub(crate) mark: Option<Mark>,
    pub(crate) item: T,
}

/// An item of a node.
pub(crate) struct Arrived<T> {
    pub(crate) node: String,
    /// Place after it, if its node has a log that is followed.
    pub(crate) place: Option<(NodeId, Mark)>,
    pub(crate) item: T,
}

/// Way to follow nodes.
#[derive(Clone, Copy)]
pub(crate) struct Following {
    /// True to go on after the end of a stream, and after failures.
    pub(crate) follows: bool,
    /// Time that an item waits for earlier ones of other nodes.
    pub(crate) patience: Option<Duration>,
}

/// Prints the items of all nodes in the order of time. Fails if no node can be reached at first, or if all have failed in the end.
pub(crate) async fn run<F: Feed>(
    fleet: &Fleet,
    feed: &F,
    position: &Position,
    following: Following,
    mut print: impl FnMut(Arrived<F::Item>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let reached = fleet.reach().await;
    if reached.iter().all(Result::is_err) {
        let failures = reached.into_iter().filter_map(Result::err).collect::<Vec<_>>();
        for (node, failure) in fleet.nodes.iter().zip(&failures) {
            fleet.warn(&node.name, failure);
        }
        return Err(none_answers(failures));
    }
    let (mut merge, senders) = Merge::new(fleet.nodes.len(), following.patience);
    let read = RefCell::new(Read { marks: position.clone(), followed: BTreeSet::new() });
    let followed = fleet.nodes.iter().zip(reached).zip(senders).map(|((node, reached), sender)| {
        let follower =
            Follower { fleet, node, feed, sender, read: &read, is_lost: false, pause: FIRST_PAUSE };
        follower.run(reached, following.follows)
    });
    let followed = pin!(join_all(followed));
    let printed = pin!(async {
        while let Some(arrived) = merge.next().await {
            print(arrived)?;
        }
        Ok::<(), Failure>(())
    });
    let ended = match select(printed, followed).await {
        Either::Left((printed, _)) => return printed,
        Either::Right((ended, printed)) => {
            printed.await?;
            ended
        }
    };
    if ended.iter().all(Result::is_err) {
        return Err(none_answers(ended.into_iter().filter_map(Result::err)));
    }
    Ok(())
}

/// State that all followers share, because another daemon can get an address that DNS has.
struct Read {
    /// Places in the logs that were read so far.
    marks: Position,
    /// Nodes that are followed now.
    followed: BTreeSet<NodeId>,
}

impl Read {
    /// Begins to follow a node. Fails if it is followed at another address: each record is read once.
    fn enter(&mut self, node: Option<NodeId>) -> Result<(), Failure> {
        match node {
            Some(id) if !self.followed.insert(id) => Err(Failure::unreachable(format!(
                "it is node {id} now, which is followed at another address"
            ))),
            _ => Ok(()),
        }
    }

    fn leave(&mut self, node: Option<NodeId>) {
        if let Some(id) = node {
            self.followed.remove(&id);
        }
    }
}

/// One node that is followed.
struct Follower<'a, F: Feed> {
    fleet: &'a Fleet,
    node: &'a Node,
    feed: &'a F,
    sender: Sender<Sent<Arrived<F::Item>>>,
    read: &'a RefCell<Read>,
    is_lost: bool,
    pause: Duration,
}

impl<F: Feed> Follower<'_, F> {
    /// Sends the items of the node until its stream ends. Fails if it broke off, or, for a node that is followed, for good.
    async fn run(mut self, first: Result<Reached, Failure>, follows: bool) -> Result<(), Failure> {
        let mut reached = first;
        loop {
            let ended = match reached {
                Ok(node) => self.follow(&node, follows).await,
                Err(failure) => Err(failure),
            };
            let failure = match ended {
                Ok(()) if !follows => return Ok(()),
                Ok(()) => Failure::unreachable("the daemon has ended the stream: it stops, or starts again"),
                Err(failure) => failure,
            };
            if !self.is_lost {
                self.is_lost = true;
                self.fleet.warn(&self.node.name, &failure);
            }
            if self.sender.send(Sent::Lost).await.is_err() || !follows || is_final(&failure) {
                return Err(failure);
            }
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            reached = self.node.reach().await;
        }
    }

    /// Sends the items of one connection, unless its node is followed at another address.
    async fn follow(&mut self, reached: &Reached, follows: bool) -> Result<(), Failure> {
        self.read.borrow_mut().enter(reached.id)?;
        let ended = self.send_all(reached, follows).await;
        self.read.borrow_mut().leave(reached.id);
        ended
    }

    /// Sends the items of one connection, until it ends.
    async fn send_all(&mut self, reached: &Reached, follows: bool) -> Result<(), Failure> {
        let after = reached.id.and_then(|id| self.read.borrow().marks.of(id));
        let late = |_| Failure::unreachable("does not begin to answer in time");
        let Opened { mut items, warning } =
            timeout(OPENED, self.feed.open(reached, after)).await.map_err(late)??;
        if std::mem::take(&mut self.is_lost) {
            self.fleet.ui.note(&format!("node {} is back", self.node.name));
        }
        if let Some(warning) = warning {
            self.fleet.ui.note(&format!("warning: node {}: {warning}", self.node.name));
        }
        let opened = Instant::now();
        let silence = if follows { None } else { Some(SILENCE) };
        while let Some(Placed { moment, mark, item }) = next_of(&mut items, silence).await? {
            let place = reached.id.zip(mark);
            if let Some((id, mark)) = place {
                self.read.borrow_mut().marks.set(id, mark);
            }
            let arrived = Arrived { node: reached.name.clone(), place, item };
            if self.sender.send(Sent::Item(moment, Instant::now(), arrived)).await.is_err() {
                return Ok(());
            }
            self.pause = FIRST_PAUSE;
        }
        if opened.elapsed() > LONGEST_PAUSE {
            self.pause = FIRST_PAUSE;
        }
        Ok(())
    }
}

/// Returns the next item of a stream. Fails if the stream is silent for too long.
async fn next_of<T>(
    items: &mut (impl Stream<Item = Result<T, Status>> + Unpin),
    silence: Option<Duration>,
) -> Result<Option<T>, Failure> {
    let next = match silence {
        None => items.next().await,
        Some(silence) => timeout(silence, items.next()).await.map_err(|_| {
            Failure::unreachable(format!("has sent nothing for {} minutes", silence.as_secs() / 60))
        })?,
    };
    Ok(next.transpose()?)
}

/// Returns true for a failure that the next attempt would have, too.
fn is_final(failure: &Failure) -> bool {
    matches!(failure.exit(), Exit::Usage | Exit::Denied) && failure.reason() != "RATE_LIMITED"
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_not_followed_is_silent_only_so_long() {
        let mut items = stream::iter([Ok(1)]).chain(stream::pending());
        assert_eq!(next_of(&mut items, Some(SILENCE)).await.unwrap(), Some(1));
        let begun = Instant::now();
        let silent = next_of(&mut items, Some(SILENCE)).await.unwrap_err();
        assert_eq!((silent.exit(), begun.elapsed().as_secs()), (Exit::Unreachable, SILENCE.as_secs()));
        let day = Duration::from_secs(86_400);
        assert!(
            timeout(day, next_of(&mut items, None)).await.is_err(),
            "a stream that is followed may be silent"
        );
        let mut refused = stream::iter([Err::<u8, _>(Status::permission_denied("no role"))]);
        assert_eq!(next_of(&mut refused, None).await.unwrap_err().exit(), Exit::Denied);
    }

    #[test]
    fn a_node_is_followed_at_one_address_at_a_time() {
        let mut read = Read { marks: Position::default(), followed: BTreeSet::new() };
        let number = |number: u16| NodeId::try_from(number).ok();
        let follows = |read: &mut Read, node| read.enter(node).map_err(|failure| is_final(&failure));
        for node in [number(1), number(2), None, None] {
            assert_eq!(follows(&mut read, node), Ok(()));
        }
        assert_eq!(follows(&mut read, number(1)), Err(false), "it is tried again");
        read.leave(number(1));
        assert_eq!(follows(&mut read, number(1)), Ok(()));
    }

    #[test]
    fn refusals_are_final_and_broken_connections_are_not() {
        assert!(is_final(&Failure::not_permitted("no role")) && is_final(&Failure::usage("wrong")));
        assert!(!is_final(&Failure::unreachable("down")) && !is_final(&Failure::failed("full")));
    }
}
