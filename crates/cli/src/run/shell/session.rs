//! Transfers bytes in both directions of a session, until one of them ends it.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::timeout;
use tonic::{Status, Streaming};
use wire::v1::open_terminal_request::Event as Said;
use wire::v1::open_terminal_response::Event as Shown;
use wire::v1::terminal_closed::Reason;
use wire::v1::{OpenTerminalRequest, OpenTerminalResponse, TerminalClosed};

use super::escape::{Escape, HELP, Wish};
use super::raw::{self, Raw};
use super::threads;
use crate::failure::Failure;

/// Time that the daemon has to end the processes of a session that was left: SIGHUP, SIGTERM, its grace period, SIGKILL.
const LEAVE: Duration = Duration::from_secs(8);
/// Time for the last output to reach the screen.
const LAST: Duration = Duration::from_secs(2);

/// End of a session, as this client sees it.
pub(super) enum End {
    /// The daemon reported the end.
    Closed(TerminalClosed),
    /// The user typed `~.`, or the terminal is gone.
    Left,
    /// `coffer` received this signal.
    Signalled(u8),
}

pub(super) struct Session {
    say: Sender<OpenTerminalRequest>,
    shown: Streaming<OpenTerminalResponse>,
    resized: Signal,
    ends: [(u8, Signal); 4],
}

impl Session {
    /// Takes over the signals. From then on, none of them ends `coffer` directly.
    pub(super) fn new(
        say: Sender<OpenTerminalRequest>,
        shown: Streaming<OpenTerminalResponse>,
    ) -> io::Result<Self> {
        let end = |number: u8| Ok::<_, io::Error>((number, signal(SignalKind::from_raw(number.into()))?));
        let ends = [end(1)?, end(2)?, end(3)?, end(15)?];
        Ok(Self { say, shown, resized: signal(SignalKind::window_change())?, ends })
    }

    /// Puts the terminal into raw mode and transfers bytes in both directions.
    pub(super) async fn attend(mut self) -> Result<End, Failure> {
        let raw = Raw::enter()?;
        let mut keys = threads::keys()?;
        let (screen, written) = threads::screen()?;
        let ended = self.carry(&mut keys, &screen).await;
        if !matches!(&ended, Ok(End::Closed(closed)) if closed.reason() == Reason::Exited) {
            // The cursor may be anywhere in a line.
            let _ = screen.try_send(b"\r\n".to_vec());
        }
        drop(screen);
        let _ = timeout(LAST, written).await;
        drop(raw);
        if matches!(ended, Ok(End::Left)) {
            drop(self.say);
            let over = async { while let Ok(Some(_)) = self.shown.message().await {} };
            let _ = timeout(LEAVE, over).await;
        }
        ended
    }

    async fn carry(
        &mut self,
        keys: &mut Receiver<Vec<u8>>,
        screen: &Sender<Vec<u8>>,
    ) -> Result<End, Failure> {
        let mut escape = Escape::default();
        // Neither direction waits for the other. A message that the channel cannot take yet stays here.
        let mut outgoing: Option<Said> = None;
        let mut incoming: Option<Vec<u8>> = None;
        loop {
            let [(hup, hangup), (int, interrupt), (quit, quitting), (term, terminate)] = &mut self.ends;
            tokio::select! {
                _ = hangup.recv() => return Ok(End::Signalled(*hup)),
                _ = interrupt.recv() => return Ok(End::Signalled(*int)),
                _ = quitting.recv() => return Ok(End::Signalled(*quit)),
                _ = terminate.recv() => return Ok(End::Signalled(*term)),
                Some(()) = self.resized.recv(), if outgoing.is_none() => {
                    outgoing = raw::size().map(Said::Resize);
                }
                typed = keys.recv(), if outgoing.is_none() => {
                    let Some(typed) = typed else { return Ok(End::Left) };
                    let (bytes, wish) = escape.take(&typed);
                    match wish {
                        Some(Wish::Leave) => return Ok(End::Left),
                        Some(Wish::Help) => help(screen),
                        None => {}
                    }
                    outgoing = Some(bytes).filter(|bytes| !bytes.is_empty()).map(Said::Input);
                }
                place = self.say.reserve(), if outgoing.is_some() => {
                    // If the daemon no longer listens, its last message is on its way.
                    if let (Ok(place), Some(event)) = (place, outgoing.take()) {
                        place.send(OpenTerminalRequest { event: Some(event) });
                    }
                }
                response = self.shown.message(), if incoming.is_none() => match event(response)? {
                    Shown::Output(bytes) => incoming = Some(bytes),
                    Shown::Closed(closed) => return Ok(End::Closed(closed)),
                    Shown::Opened(_) => {}
                },
                place = screen.reserve(), if incoming.is_some() => match (place, incoming.take()) {
                    (Ok(place), Some(bytes)) => place.send(bytes),
                    // The terminal is gone.
                    _ => return Ok(End::Left),
                },
            }
        }
    }
}

fn event(response: Result<Option<OpenTerminalResponse>, Status>) -> Result<Shown, Failure> {
    let broken = || Failure::unreachable("the connection to the daemon broke, which ended the session");
    response?.and_then(|response| response.event).ok_or_else(broken)
}

/// Prints the help, unless the queue of the screen is full.
fn help(screen: &Sender<Vec<u8>>) {
    let _ = screen.try_send(format!("\r\n{}", HELP.replace('\n', "\r\n")).into_bytes());
}
