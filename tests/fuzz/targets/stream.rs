//! A worker may say anything, at any time, about any call: the client takes it or closes the stream, every call comes to
//! an end, what was placed is finished exactly once, no call has more output than its bounds permit, and the output
//! arrives once, in order and whole.
//!
//! Input: a script of steps, each a byte that says which and the bytes that it takes. Time is simulated.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use fuzz::scene::path;
use fuzz::worker::{Gauge, Leaf, Worker, frame};
use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};
use operations::{Bounds, Exec, List, Operation, Write};
use prost::Message;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::v1;
use wire::worker::v1::{self as w, from_worker::Body};
use worker_protocol::client::{
    CallSpec, Client, ConnectOptions, Finished, Keyboard, LaneError, OutputSink, Placement, SessionOver,
    TerminalSignal, TerminalSize, TerminalSpec,
};
use worker_protocol::convert::Reply;
use worker_protocol::frame::encode;

/// Steps of one script, and calls in it.
const MAX_STEPS: usize = 64;
const MAX_CALLS: usize = 8;
/// Far beyond every deadline and grace together.
const PATIENCE: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_secs(20);

fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let options = ConnectOptions { max_calls: 4, max_terminals: 2, ..ConnectOptions::default() };
        let (worker, client) = Worker::connected(options).await;
        let mut world = World { worker, client, calls: Vec::new(), said: [0; 2] };
        let mut script = Unstructured::new(data);
        for _ in 0..MAX_STEPS {
            if script.is_empty() || world.step(&mut script).await.is_err() {
                break;
            }
        }
        world.end().await;
    });
});

struct Call {
    handle: JoinHandle<Result<Finished<Reply>, LaneError>>,
    /// Of a terminal.
    keyboard: Option<Keyboard>,
    bounds: Bounds,
    cancel: CancellationToken,
    leaf: Option<Arc<Leaf>>,
    sink: Arc<Gauge>,
}

struct World {
    worker: Worker,
    client: Client,
    calls: Vec<Call>,
    /// Bytes that the worker has said of a call's streams: the offset that comes next.
    said: [u64; 2],
}

type Script<'a, 'b> = &'a mut Unstructured<'b>;
type Step = Result<(), libfuzzer_sys::arbitrary::Error>;

impl World {
    async fn step(&mut self, script: Script<'_, '_>) -> Step {
        match script.arbitrary::<u8>()? % 18 {
            0 | 1 => self.call(script)?,
            2..=10 => {
                let bytes = self.known(script)?;
                self.worker.say(&bytes).await;
            }
            11 => {
                let (id, field) = (script.arbitrary::<u8>()?, script.arbitrary::<u8>()? % 16);
                let bytes = frame(id.into(), field.max(1), bytes(script)?);
                self.worker.say(&bytes).await;
            }
            12 => {
                let bytes = bytes(script)?;
                self.worker.say(bytes).await;
            }
            13 => tokio::time::sleep(Duration::from_millis(script.arbitrary::<u16>()?.into())).await,
            14 => {
                let which = usize::from(script.arbitrary::<u8>()?);
                if let Some(call) = self.calls.get(which / 2) {
                    if which % 2 == 0 { call.cancel.cancel() } else { call.handle.abort() }
                }
            }
            15 => self.worker.fall_silent().await,
            _ => self.touch(script)?,
        }
        // Until everybody waits for the next step.
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    fn call(&mut self, script: Script<'_, '_>) -> Step {
        if self.calls.len() == MAX_CALLS {
            return Ok(());
        }
        let (kind, output, spool) =
            (script.arbitrary::<u8>()?, script.arbitrary::<u8>()?, script.arbitrary::<u8>()?);
        let bounds = Bounds {
            max_output_bytes: output.into(),
            max_spool_bytes: u64::from(spool) * 16,
            ..Bounds::default()
        };
        let leaf = (kind & 0x80 == 0).then(Leaf::new);
        let placement = leaf.clone().map(|leaf| leaf as Arc<dyn Placement>);
        let cancel = CancellationToken::new();
        let sink = Gauge::new(bounds.max_spool_bytes, kind & 0x20 != 0);
        let output: Arc<dyn OutputSink> = sink.clone();
        let (handle, keyboard) = match kind % 8 {
            7 => match self.terminal(&bounds, &output, placement, &cancel) {
                Some((handle, keyboard)) => (handle, Some(keyboard)),
                None => return Ok(()),
            },
            kind_of_call => {
                let operation = match kind_of_call {
                    0 => list(),
                    1 => write(),
                    _ => Operation::Exec(exec()),
                };
                let (client, bounds, cancel) = (self.client.clone(), bounds.clone(), cancel.clone());
                let handle = tokio::spawn(async move {
                    let output = (kind & 0x10 != 0).then_some(&output);
                    let (operation, bounds, preview) = (&operation, &bounds, kind & 0x40 != 0);
                    let spec = CallSpec { operation, bounds, deadline: DEADLINE, preview, output };
                    client.call(spec, placement, cancel).await
                });
                (handle, None)
            }
        };
        self.calls.push(Call { handle, keyboard, bounds, cancel, leaf, sink });
        Ok(())
    }

    /// `None` when there are too many, or the stream is closed.
    fn terminal(
        &self,
        bounds: &Bounds,
        output: &Arc<dyn OutputSink>,
        placement: Option<Arc<dyn Placement>>,
        cancel: &CancellationToken,
    ) -> Option<(JoinHandle<Result<Finished<Reply>, LaneError>>, Keyboard)> {
        let (exec, size) = (exec(), TerminalSize::new(24, 80)?);
        let spec = TerminalSpec {
            exec: &exec,
            login_shell: true,
            bounds,
            size,
            pipes: false,
            deadline: DEADLINE,
            output,
        };
        let terminal = self.client.terminal(spec, placement, cancel).ok()?;
        let keyboard = terminal.keyboard();
        Some((tokio::spawn(terminal.finished()), keyboard))
    }

    /// Somebody types at a terminal, does something to it, or does not care that it takes nothing.
    fn touch(&self, script: Script<'_, '_>) -> Step {
        let (which, what) = (script.arbitrary::<u8>()?, script.arbitrary::<u8>()?);
        let keyboards: Vec<&Keyboard> = self.calls.iter().filter_map(|call| call.keyboard.as_ref()).collect();
        let Some(keyboard) = keyboards.get(usize::from(which) % keyboards.len().max(1)).copied().cloned()
        else {
            return Ok(());
        };
        tokio::spawn(async move {
            let _ = match what % 4 {
                0 => keyboard.signal(TerminalSignal::Int).await,
                1 => keyboard.resize(TerminalSize::new(1 + u32::from(what), 80).expect("a size")).await,
                _ => keyboard.write(&vec![b'x'; usize::from(what) * 512]).await,
            };
        });
        Ok(())
    }

    /// A frame of a kind that there is, mostly with what would be right.
    fn known(&mut self, script: Script<'_, '_>) -> Result<Vec<u8>, libfuzzer_sys::arbitrary::Error> {
        let id = u64::from(script.arbitrary::<u8>()? % 10);
        let kind = script.arbitrary::<u8>()?;
        let body = match kind % 8 {
            0 => Body::Spawned(w::Spawned { pid: script.arbitrary::<u8>()?.into() }),
            1 => Body::Ended(w::Ended { forced: kind & 0x80 != 0, drain_pid: u32::from(kind) }),
            2 | 3 => {
                let data = bytes(script)?.to_vec();
                let stream = usize::from(kind & 0x80 != 0);
                let offset = self.said[stream] + u64::from(kind >> 3 & 1) * 7;
                self.said[stream] += data.len() as u64;
                let stream = if stream == 0 { w::output::Stream::Stdout } else { w::output::Stream::Stderr };
                Body::Output(w::Output { stream: stream.into(), offset, data: data.into() })
            }
            4 => outcome(w::outcome::Kind::Command(w::CommandReport {
                exit_code: Some(0),
                stop: w::command_report::Stop::Itself.into(),
                stdout_bytes: self.said[0] + u64::from(kind >> 3 & 1) * 1000,
                stderr_bytes: self.said[1],
                ..Default::default()
            })),
            5 if kind & 0x80 != 0 => {
                Body::Taken(w::Taken { bytes: u64::from(script.arbitrary::<u8>()?) * 512 })
            }
            5 => {
                let kind = Some(v1::result::Kind::List(v1::ListResult::default()));
                outcome(w::outcome::Kind::Result(v1::Result { kind }))
            }
            6 => Body::Outcome(w::Outcome {
                kind: Some(w::outcome::Kind::Failure(v1::ToolFailure {
                    reason: "NOT_FOUND".to_owned(),
                    ..Default::default()
                })),
                usage: Some(w::Usage { cpu_time_us: Some(u64::MAX), peak_memory_bytes: Some(u64::MAX) }),
                ..Default::default()
            }),
            _ => match w::FromWorker::decode(bytes(script)?) {
                Ok(w::FromWorker { body: Some(body), .. }) => body,
                _ => Body::Pong(w::Pong {}),
            },
        };
        Ok(encode(&w::FromWorker { id, body: Some(body) }).unwrap_or_default())
    }

    async fn end(self) {
        let Self { mut worker, client, calls, .. } = self;
        for Call { mut handle, keyboard, bounds, leaf, sink, .. } in calls {
            let ended =
                tokio::time::timeout(PATIENCE, &mut handle).await.expect("every call comes to an end");
            if let Ok(Ok(finished)) = ended {
                check(&finished, &bounds, leaf.is_some(), keyboard.is_some());
                sink.check(&finished);
            }
            // A call whose caller has gone is still being ended.
            tokio::time::sleep(Duration::from_secs(60)).await;
            if let Some(leaf) = leaf {
                leaf.check();
            }
            if let Some(keyboard) = keyboard {
                let typed = tokio::time::timeout(PATIENCE, keyboard.write(b"anyone?")).await;
                assert_eq!(typed, Ok(Err(SessionOver)), "nobody is left to type to");
            }
        }
        worker.fall_silent().await;
        tokio::time::timeout(PATIENCE, client.closed()).await.expect("a silent stream is closed");
        tokio::time::timeout(PATIENCE, client.shutdown()).await.expect("a client shuts down");
    }
}

/// Nothing that the worker says of a command counts beside what was seen.
fn check(finished: &Finished<Reply>, bounds: &Bounds, placed: bool, terminal: bool) {
    let Ok(Reply::Command(report)) = &finished.outcome else { return };
    for (text, bytes, omitted) in [
        (&report.stdout.text, report.stdout.bytes, report.stdout.omitted),
        (&report.stderr.text, report.stderr.bytes, report.stderr.omitted),
    ] {
        // A stray byte is shown by three, and one line stands for what is left out.
        let most = if terminal { 0 } else { 3 * bounds.max_output_bytes + 60 };
        assert!(text.len() as u64 <= most, "{} bytes of {bytes}", text.len());
        assert!(omitted <= bytes && (bytes <= bounds.max_output_bytes || omitted > 0), "{report:?}");
    }
    assert_eq!(report.kill.method() == Leaf::METHOD, placed, "{report:?}");
}

fn bytes<'b>(script: &mut Unstructured<'b>) -> Result<&'b [u8], libfuzzer_sys::arbitrary::Error> {
    let length = usize::from(script.arbitrary::<u8>()?);
    script.bytes(length.min(script.len()))
}

fn outcome(kind: w::outcome::Kind) -> Body {
    Body::Outcome(w::Outcome { kind: Some(kind), ..Default::default() })
}

fn list() -> Operation {
    Operation::List(List::new(path(".")))
}

fn write() -> Operation {
    Operation::Write(Write::new(path("a"), ""))
}

fn exec() -> Exec {
    Exec { timeout: Duration::from_secs(1), ..Exec::new("true", [""; 0]) }
}
