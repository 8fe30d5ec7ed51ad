//! The table against a model, over random histories of what a worker says and what the daemon does meanwhile: a frame is
//! taken when the model says that it may come and refused with the model's violation otherwise, and no history gets more
//! output accepted than its bounds and its credit permit.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use jail::SandboxPath;
use operations::{Bounds, Exec, KillEvidence, KillMethod, List, Operation, Write};
use proptest::prelude::*;
use prost::Message as _;
use tokio::sync::mpsc;
use wire::v1::{self, result::Kind as Result_};
use wire::worker::v1::{self as w, FromWorker, command_report::Stop, from_worker::Body};

use super::{Accepted, Beginning, Event, Table};
use crate::client::backlog::Backlog;
use crate::client::line::Line;
use crate::client::window::WINDOW;
use crate::client::{CallSpec, Violation};
use crate::convert::Reply;
use crate::terminal::MAX_UNTAKEN;

const CHUNK: usize = 64 * 1024;
/// Bytes of a stream that are kept for the result.
const KEPT: u64 = 10;
const FOUND: KillMethod = KillMethod::CgroupV1Freezer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Write,
    Preview,
    Exec,
    Terminal,
}

#[derive(Debug, Clone)]
enum Step {
    Begin {
        kind: Kind,
        placed: bool,
        limit: u64,
    },
    /// The driver answers what it was told last.
    Drive {
        call: usize,
    },
    /// The sink takes a piece, for which there is credit then.
    Take {
        call: usize,
    },
    Type {
        call: usize,
        bytes: usize,
    },
    Ping,
    /// Said even where it may not come, when `daring`; else left unsaid, so that the history goes on.
    Say {
        call: usize,
        what: What,
        daring: bool,
    },
    /// The same output again and again, also without credit.
    Flood {
        call: usize,
        chunks: usize,
    },
}

#[derive(Debug, Clone)]
enum What {
    Spawned(u32),
    Ended,
    Output {
        stream: i32,
        skip: u64,
        length: usize,
    },
    Taken(u64),
    Failure {
        known: bool,
    },
    /// A command's result, with counts that are off by so much.
    Ran {
        more: u64,
        forged: bool,
    },
    Listed,
    Written,
    Edited,
    Nothing,
    Pong,
    Hello,
}

fn step() -> impl Strategy<Value = Step> {
    let call = || 0..4_usize;
    let limit = prop_oneof![Just(0), Just(5), Just(100_000), Just(64 << 20)];
    let kind = prop::sample::select(vec![
        Kind::List,
        Kind::Write,
        Kind::Preview,
        Kind::Exec,
        Kind::Exec,
        Kind::Terminal,
    ]);
    prop_oneof![
        3 => (kind, any::<bool>(), limit).prop_map(|(kind, placed, limit)| Step::Begin { kind, placed, limit }),
        4 => call().prop_map(|call| Step::Drive { call }),
        2 => call().prop_map(|call| Step::Take { call }),
        2 => (call(), 1..=MAX_UNTAKEN / 4).prop_map(|(call, bytes)| Step::Type { call, bytes }),
        1 => Just(Step::Ping),
        16 => (call(), what(), prop::bool::weighted(0.05))
            .prop_map(|(call, what, daring)| Step::Say { call, what, daring }),
        1 => (call(), 8..24_usize).prop_map(|(call, chunks)| Step::Flood { call, chunks }),
    ]
}

/// Mostly what can be right somewhere.
fn what() -> impl Strategy<Value = What> {
    let rarely = |of: u64| prop_oneof![20 => Just(0), 1 => Just(of)];
    let length = prop_oneof![6 => Just(3_usize), 2 => Just(CHUNK), 1 => Just(0), 1 => Just(CHUNK + 1)];
    prop_oneof![
        6 => prop_oneof![9 => Just(40), 1 => prop::sample::select(vec![0, 1, 2, 1 << 31])].prop_map(What::Spawned),
        4 => Just(What::Ended),
        8 => (prop_oneof![6 => Just(1), 3 => Just(2), 1 => Just(0), 1 => Just(9)], rarely(7), length)
            .prop_map(|(stream, skip, length)| What::Output { stream, skip, length }),
        2 => (0..40_000_u64).prop_map(What::Taken),
        1 => prop::bool::weighted(0.9).prop_map(|known| What::Failure { known }),
        4 => (rarely(1), prop::bool::weighted(0.02)).prop_map(|(more, forged)| What::Ran { more, forged }),
        1 => Just(What::Listed),
        1 => Just(What::Written),
        1 => Just(What::Edited),
        1 => prop::sample::select(vec![What::Nothing, What::Pong, What::Pong, What::Hello]),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    Spawned,
    Runs,
    Ended,
    Over,
}

struct Call {
    id: u64,
    kind: Kind,
    placed: bool,
    stage: Stage,
    limit: u64,
    streams: [u64; 2],
    /// Bytes that might be sent altogether, after every credit.
    granted: Vec<u64>,
    untaken: usize,
    taken: [u64; 2],
    bytes_out: u64,
    backlog: Arc<Backlog>,
    line: Arc<Line>,
    events: mpsc::Receiver<Event>,
}

impl Call {
    fn is_command(&self) -> bool {
        matches!(self.kind, Kind::Exec | Kind::Terminal)
    }

    fn received(&self) -> u64 {
        self.streams.iter().sum()
    }

    fn has_begun_to_run(&self) -> bool {
        !matches!(self.stage, Stage::Begun | Stage::Spawned)
    }

    /// Checks that the worker may send this about the call now.
    fn permits(&self, what: &What) -> Result<(), Violation> {
        let held = |holds: bool, violation| if holds { Ok(()) } else { Err(violation) };
        let command = self.is_command();
        match *what {
            What::Spawned(pid) => held(
                command && self.stage == Stage::Begun && (2..=i32::MAX.unsigned_abs()).contains(&pid),
                Violation::Spawned,
            ),
            What::Ended => held(command && self.placed && self.stage == Stage::Runs, Violation::Ended),
            What::Output { stream, skip, length } => {
                let known = stream == 1 || (stream == 2 && self.kind == Kind::Exec);
                let fits = (1..=CHUNK).contains(&length) && self.received() + length as u64 <= self.limit;
                held(command && self.has_begun_to_run() && known && skip == 0 && fits, Violation::Output)?;
                held(
                    self.received() + length as u64 <= self.granted[self.granted.len() - 1],
                    Violation::Window,
                )
            }
            What::Taken(bytes) => held(
                self.kind == Kind::Terminal
                    && self.has_begun_to_run()
                    && (1..=self.untaken as u64).contains(&bytes),
                Violation::Taken,
            ),
            What::Failure { known } => {
                let hides = self.received() > 0 || matches!(self.stage, Stage::Ended | Stage::Over);
                held(known && !(command && hides), Violation::Outcome)
            }
            What::Ran { more, forged } => {
                let ended = matches!(self.stage, Stage::Runs | Stage::Over);
                let stopped = self.received() == self.limit || self.granted.contains(&self.received());
                held(command && ended && !forged && (more == 0 || stopped), Violation::Outcome)
            }
            What::Listed => held(self.kind == Kind::List, Violation::Outcome),
            What::Written => held(self.kind == Kind::Write, Violation::Outcome),
            What::Edited => held(self.kind == Kind::Preview, Violation::Outcome),
            What::Nothing => Err(Violation::Empty),
            What::Pong => Err(Violation::Pong),
            What::Hello => Err(Violation::Hello),
        }
    }

    fn body(&self, what: &What) -> Option<Body> {
        Some(match *what {
            What::Spawned(pid) => Body::Spawned(w::Spawned { pid }),
            What::Ended => Body::Ended(w::Ended { forced: false, drain_pid: 0 }),
            What::Output { stream, skip, length } => {
                let offset = self.streams[usize::from(stream == 2)] + skip;
                Body::Output(w::Output { stream, offset, data: Bytes::from(vec![b'x'; length]) })
            }
            What::Taken(bytes) => Body::Taken(w::Taken { bytes }),
            What::Failure { known } => {
                let reason = if known { "NOT_FOUND" } else { "NO_SUCH_REASON" }.to_owned();
                outcome(w::outcome::Kind::Failure(v1::ToolFailure { reason, ..Default::default() }))
            }
            What::Ran { more, forged } => outcome(w::outcome::Kind::Command(w::CommandReport {
                stop: if forged { Stop::Unspecified } else { Stop::Itself }.into(),
                stdout_bytes: self.streams[0] + more,
                stderr_bytes: self.streams[1],
                ..Default::default()
            })),
            What::Listed => result(Result_::List(v1::ListResult::default())),
            What::Written => result(Result_::Write(v1::WriteResult::default())),
            What::Edited => result(Result_::Edit(v1::EditResult::default())),
            What::Nothing => return None,
            What::Pong => Body::Pong(w::Pong {}),
            What::Hello => Body::Hello(w::Hello::default()),
        })
    }

    /// The call's last event, when `what` has ended it.
    fn finished(mut self, what: &What) {
        let finished = loop {
            match self.events.try_recv().expect("an end is told") {
                Event::Finished(finished) => break finished,
                Event::Spawned(_) | Event::Ended { .. } => {}
            }
        };
        assert_eq!(finished.bytes_out, self.bytes_out);
        let Ok(Reply::Command(report)) = finished.outcome else { return };
        let What::Ran { more, .. } = *what else { panic!("a result out of {what:?}") };
        assert_eq!(report.kill.method() == FOUND, self.placed && self.stage == Stage::Over);
        let kept = if self.kind == Kind::Terminal { 0 } else { KEPT };
        for (text, bytes, omitted) in [
            (&report.stdout.text, self.streams[0] + more, report.stdout.omitted),
            (&report.stderr.text, self.streams[1], report.stderr.omitted),
        ] {
            assert!(text.len() <= 60 && text.matches('x').count() as u64 <= kept, "{text:?}");
            assert_eq!(omitted, bytes - text.matches('x').count() as u64);
        }
    }
}

fn outcome(kind: w::outcome::Kind) -> Body {
    Body::Outcome(w::Outcome { kind: Some(kind), usage: None, bound: None, hints: Vec::new() })
}

fn result(kind: Result_) -> Body {
    outcome(w::outcome::Kind::Result(v1::Result { kind: Some(kind) }))
}

#[derive(Default)]
struct World {
    table: Table,
    calls: Vec<Call>,
    last_id: u64,
    pings: u32,
}

impl World {
    /// An error ends the history, as it ends a stream.
    fn take(&mut self, step: &Step) -> Result<(), Violation> {
        let count = self.calls.len().max(1);
        let index = |call: usize| call % count;
        match *step {
            Step::Begin { kind, placed, limit } => self.begin(kind, placed, limit),
            Step::Drive { call } => self.drive(index(call)),
            Step::Take { call } => self.sink(index(call)),
            Step::Type { call, bytes } => self.type_(index(call), bytes),
            Step::Ping => {
                self.table.ping();
                self.pings += 1;
            }
            Step::Say { call, ref what, daring } => {
                let call = index(call);
                if daring || self.calls.get(call).is_some_and(|call| call.permits(what).is_ok()) {
                    return self.say(call, what);
                }
            }
            Step::Flood { call, chunks } => {
                let what = What::Output { stream: 1, skip: 0, length: CHUNK };
                let call = index(call);
                for _ in 0..chunks {
                    let Some(permitted) = self.calls.get(call).map(|call| call.permits(&what)) else { break };
                    if matches!(permitted, Ok(()) | Err(Violation::Window)) {
                        self.say(call, &what)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, kind: Kind, placed: bool, limit: u64) {
        if self.calls.len() == 4 {
            return;
        }
        let path = SandboxPath::parse("a").unwrap();
        let operation = match kind {
            Kind::List => Operation::List(List::new(path)),
            Kind::Write | Kind::Preview => Operation::Write(Write::new(path, "")),
            Kind::Exec | Kind::Terminal => Operation::Exec(Exec::new("true", [""; 0])),
        };
        let bounds = Bounds { max_output_bytes: KEPT, max_spool_bytes: limit, ..Bounds::default() };
        let (backlog, line) = (Arc::new(Backlog::default()), Arc::new(Line::new(false)));
        let spec = CallSpec {
            operation: &operation,
            bounds: &bounds,
            deadline: Duration::from_secs(1),
            preview: kind == Kind::Preview,
            output: None,
        };
        self.last_id += 1;
        let typed_at = (kind == Kind::Terminal).then_some(&line);
        let beginning = Beginning {
            spec: &spec,
            placed,
            prepared: false,
            awaits_go: false,
            bytes_in: 1,
            backlog: &backlog,
            line: typed_at,
        };
        let events = self.table.begin(self.last_id, &beginning);
        self.calls.push(Call {
            id: self.last_id,
            kind,
            placed,
            stage: if placed { Stage::Begun } else { Stage::Runs },
            limit,
            streams: [0; 2],
            granted: vec![WINDOW],
            untaken: 0,
            taken: [0; 2],
            bytes_out: 0,
            backlog,
            line,
            events,
        });
    }

    fn drive(&mut self, call: usize) {
        let Some(call) = self.calls.get_mut(call) else { return };
        match call.stage {
            Stage::Spawned => {
                self.table.release(call.id);
                call.stage = Stage::Runs;
            }
            Stage::Ended => {
                let evidence =
                    KillEvidence { ended: 1, left: 0, method: FOUND.into(), took_us: 7, running: 0 };
                self.table.clear(call.id, evidence);
                call.stage = Stage::Over;
            }
            Stage::Begun | Stage::Runs | Stage::Over => {}
        }
    }

    fn sink(&mut self, call: usize) {
        let Some(call) = self.calls.get_mut(call) else { return };
        let next = pin!(call.backlog.next()).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(piece)) = next else { return };
        let (stream, length) =
            (usize::from(piece.stream == crate::client::OutputStream::Stderr), piece.data.len());
        assert_eq!(piece.offset, call.taken[stream]);
        call.taken[stream] += length as u64;
        assert!(call.taken[stream] <= call.streams[stream]);
        assert!(self.table.grant(call.id, length as u64));
        call.granted.push(call.granted[call.granted.len() - 1] + length as u64);
    }

    fn type_(&mut self, call: usize, bytes: usize) {
        let Some(call) = self.calls.get_mut(call).filter(|call| call.kind == Kind::Terminal) else { return };
        if let Ok(space) = call.line.space.try_acquire_many(u32::try_from(bytes).unwrap()) {
            space.forget();
            assert!(self.table.typed(call.id, bytes));
            call.untaken += bytes;
        }
    }

    fn say(&mut self, index: usize, what: &What) -> Result<(), Violation> {
        let frame = |id, body| FromWorker { id, body };
        if let What::Pong = what {
            let expected = if self.pings > 0 { Ok(Accepted::Pong) } else { Err(Violation::Pong) };
            self.pings = self.pings.saturating_sub(1);
            assert_eq!(self.table.accept(frame(0, Some(Body::Pong(w::Pong {})))), expected);
            return expected.map(drop);
        }
        let Some(call) = self.calls.get_mut(index) else {
            let said = self
                .table
                .accept(frame(self.last_id, Some(Body::Ended(w::Ended { forced: true, drain_pid: 0 }))));
            assert_eq!(said, Err(Violation::UnknownCall));
            return Err(Violation::UnknownCall);
        };
        let expected = call.permits(what);
        let frame = frame(call.id, call.body(what));
        call.bytes_out += frame.encoded_len() as u64;
        assert_eq!(self.table.accept(frame), expected.map(|()| Accepted::Call), "{what:?}");
        expected?;
        match *what {
            What::Spawned(_) => call.stage = Stage::Spawned,
            What::Ended => call.stage = Stage::Ended,
            What::Output { stream, length, .. } => call.streams[usize::from(stream == 2)] += length as u64,
            What::Taken(bytes) => call.untaken -= usize::try_from(bytes).unwrap(),
            _ => self.calls.remove(index).finished(what),
        }
        if let Some(call) = self.calls.get(index) {
            assert!(call.received() <= call.limit);
            assert_eq!(call.line.space.available_permits(), MAX_UNTAKEN - call.untaken);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn x6_no_history_gets_more_accepted_than_the_protocol_permits(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::default();
        let _ = steps.iter().try_for_each(|step| world.take(step));
    }
}
