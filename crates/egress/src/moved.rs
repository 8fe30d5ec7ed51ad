//! Counts the bytes of connections while they are open, and ends connections of a tenant that has moved its bytes of the day.
//!
//! ```text
//!  report, each second ─► bytes beyond those counted ─► run, tenant, daemon ─► bound of the tenant reached? ─► ended, on record
//!  end of a connection ─┘
//! ```
//!
//! The process counts. It is not believed to have taken bytes back: only the largest numbers that it reported are on record.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use wire::worker::v1::{BytesMoved, ConnectionEnded};

use crate::broken::Broken;
use crate::bytes::Moved;
use crate::decide::{State, sentence};
use crate::live::{Live, Step};
use crate::session::Session;
use crate::table::bytes_of_companions;
use crate::view::View;

/// Most connections of one report.
const MOST: usize = 1_024;

impl State {
    /// Counts bytes of connections. Connections to companions stay on the host, and are none of the tenant's traffic.
    pub(crate) fn moved(&self, more: Moved, is_companion: bool) {
        // The table may be stored now, and whoever restores from it takes the larger count.
        self.view.add_moved(more.sum());
        self.table.lock().add(more.sum());
        self.outside.shared().bytes.add(more);
        if !is_companion {
            self.outside.shared().tenancy.moved(&self.own.who.principal, more.sum());
        }
    }
}

impl View {
    /// Counts the bytes that companions have moved under earlier daemons, also those that have ended.
    pub(crate) fn count_companions(&self, directory: &Path) -> io::Result<()> {
        for (companion, bytes) in bytes_of_companions(directory)? {
            self.of_companion(&companion).restore_moved(bytes);
        }
        Ok(())
    }
}

impl Session {
    /// Counts the bytes of connections that are open.
    pub(crate) fn moved(&self, report: &BytesMoved) -> Result<(), Broken> {
        if report.connections.len() > MOST {
            return Err(Broken::sent("a report of too many connections"));
        }
        let (mut companions, mut others, mut shown) = (Moved::default(), Moved::default(), Vec::new());
        {
            let mut all = self.live.lock();
            for one in &report.connections {
                // It may just have ended.
                let Some(live) = all.get_mut(&one.id).filter(|live| matches!(live.step, Step::Out)) else {
                    continue;
                };
                let more = live.moved.raise(one.bytes_out, one.bytes_in);
                let sum = if live.companion().is_some() { &mut companions } else { &mut others };
                *sum = sum.plus(more);
                shown.push((live.id.clone(), live.moved));
            }
        }
        if companions.sum() > 0 {
            self.state.moved(companions, true);
        }
        if others.sum() > 0 {
            self.state.moved(others, false);
            self.has_moved.store(true, Ordering::Relaxed);
        }
        self.state.view.show_moved(&shown, others);
        Ok(())
    }

    /// Counts the rest of a connection that has ended. Its numbers become those that were counted.
    pub(crate) fn moved_last(&self, live: &mut Live, ended: &mut ConnectionEnded) {
        let more = live.moved.raise(ended.bytes_out, ended.bytes_in);
        (ended.bytes_out, ended.bytes_in) = (live.moved.out, live.moved.into);
        self.state.moved(more, live.companion().is_some());
        self.state.table.lock().store();
        // The bytes of a connection that went nowhere left the run, and not the host.
        if !ended.address.is_empty() {
            self.state.view.show_moved(&[], more);
        }
        self.has_moved.store(true, Ordering::Relaxed);
    }

    /// Ends the connections out of the host if bytes have moved since the last time, and the tenant has moved all its bytes of the day.
    pub(crate) async fn end_exceeded(&self) {
        if !self.has_moved.swap(false, Ordering::Relaxed) {
            return;
        }
        let Some(exceeded) = self.state.exceeded() else { return };
        let why = sentence(&exceeded);
        let open: Vec<(u64, String, u16)> = {
            let all = self.live.lock();
            let open = all.iter().filter(|(_, live)| {
                matches!(live.step, Step::Out) && live.companion().is_none() && live.ended_for.is_none()
            });
            open.map(|(number, live)| (*number, live.host(), live.port)).collect()
        };
        for (number, host, port) in open {
            self.state.refuse(&host, port, "egress: tenant", &why);
            self.end_for(number, why.clone()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use audit::Kind;
    use egress_rules::Pool;
    use serde_json::json;
    use wire::worker::v1::ConnectionBytes;
    use wire::worker::v1::connection_ended::Cause;
    use wire::worker::v1::from_egress::Body as From;
    use wire::worker::v1::to_egress::Body as To;

    use super::*;
    use crate::table::{Table, file_of};
    use crate::testing::{ADDRESS, Played};

    const RULES: &str = r#"{"networks":["203.0.113.0/24"],"rules":[{"host":"api.example.org","ports":[443],"decision":"allow"}],"max_bytes":9000000}"#;

    fn report(connections: &[(u64, u64, u64)]) -> From {
        let one = |(id, bytes_out, bytes_in): &(u64, u64, u64)| ConnectionBytes {
            id: *id,
            bytes_out: *bytes_out,
            bytes_in: *bytes_in,
        };
        From::Moved(BytesMoved { connections: connections.iter().map(one).collect() })
    }

    fn ended(bytes_out: u64, bytes_in: u64) -> From {
        From::Ended(ConnectionEnded {
            cause: Cause::Closed.into(),
            bytes_out,
            bytes_in,
            address: ADDRESS.octets().to_vec(),
            errno: 0,
        })
    }

    /// Waits until the run's bytes are counted.
    async fn counted(played: &Played, out: u64, into: u64) {
        loop {
            let counts = played.state.view.counts();
            if (counts.bytes_out, counts.bytes_in) == (out, into) {
                return;
            }
            assert!(counts.bytes_out <= out && counts.bytes_in <= into, "{counts:?}");
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn bytes_of_an_open_connection_count_once() {
        let mut played = Played::new(RULES);
        assert!(matches!(played.connect("api.example.org", 443).await, (_, To::Dial(_))));
        played.say(0, report(&[(2, 5, 7), (99, 1, 1)])).await;
        counted(&played, 5, 7).await;
        assert_eq!(played.state.bytes_left(), Some(9_000_000 - 12));
        assert_eq!(played.state.outside.shared().bytes.counts(), [5, 7]);
        let shown = played.state.view.list().0.remove(0);
        assert_eq!((shown.bytes_out, shown.bytes_in), (5, 7));
        // Smaller numbers take nothing back.
        played.say(0, report(&[(2, 1, 8)])).await;
        counted(&played, 5, 8).await;
        played.say(2, ended(6, 0)).await;
        let receipt = played.recorded(Kind::EgressReceipt).await;
        assert_eq!((&receipt["bytes_out"], &receipt["bytes_in"]), (&json!(6), &json!(8)));
        counted(&played, 6, 8).await;
        assert_eq!(played.state.bytes_left(), Some(9_000_000 - 14));
    }

    #[tokio::test]
    async fn bytes_of_a_companion_that_has_ended_count_under_the_next_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let db = file_of(directory.path(), "db");
        let mut table = Table::open(&db, Pool::DEFAULT_BLOCK).unwrap();
        table.add(400);
        table.store();
        drop(table);
        let played = Played::new(RULES);
        // Once more with the egress of each companion that goes on.
        for _ in 0..2 {
            played.state.view.count_companions(directory.path()).unwrap();
        }
        assert_eq!(played.state.bytes_left(), Some(9_000_000 - 400));
        std::fs::write(db, "hello\n").unwrap();
        assert!(played.state.view.count_companions(directory.path()).is_err());
    }

    #[tokio::test]
    async fn bytes_before_a_connection_goes_out_and_reports_without_end_do_not_count() {
        let mut played = Played::new(RULES);
        played.open("api.example.org", 443).await;
        played.say(0, report(&[(2, 5, 7)])).await;
        played.say(0, report(&vec![(2, 1, 1); MOST + 1])).await;
        let state = std::sync::Arc::clone(&played.state);
        assert!(played.broken().await.contains("a report of too many connections"));
        assert_eq!(state.view.counts().bytes_out, 0);
    }

    #[tokio::test]
    async fn bytes_of_a_connection_that_is_lost_are_on_record() {
        let mut played = Played::new(RULES);
        played.connect("api.example.org", 443).await;
        played.say(0, report(&[(2, 5, 7)])).await;
        // Breaks the protocol, which ends the process.
        played.say(0, report(&vec![(2, 1, 1); MOST + 1])).await;
        let receipt = played.recorded(Kind::EgressReceipt).await;
        assert_eq!(receipt["cause"], "process_lost");
        assert_eq!((&receipt["bytes_out"], &receipt["bytes_in"]), (&json!(5), &json!(7)));
    }

    #[tokio::test]
    async fn a_connection_that_passes_the_bytes_of_the_day_is_ended_on_record() {
        let mut played = Played::new(RULES);
        played.connect("api.example.org", 443).await;
        played.say(0, report(&[(2, 1 << 19, 0)])).await;
        played.say(0, report(&[(2, 1 << 19, 1 << 19)])).await;
        assert!(matches!(played.hear().await, To::End(_)));
        let refused = played.recorded(Kind::EgressRefused).await;
        assert_eq!(
            (&refused["rule"], &refused["host"]),
            (&json!("egress: tenant"), &json!("api.example.org"))
        );
        played.say(2, ended(1 << 19, 1 << 19)).await;
        let why = played.recorded(Kind::EgressReceipt).await["why"].as_str().unwrap().to_owned();
        assert!(why.contains("have moved 1 of at most 1 MiB of this day"), "{why}");
    }
}
