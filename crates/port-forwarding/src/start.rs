//! Parses and checks the messages of a client.

use identity::RunId;
use refusal::Refusal;
use wire::v1::ForwardPortRequest;
use wire::v1::forward_port_request::Event;

/// Most bytes in one message.
const MAX_DATA: usize = 64 * 1024;

/// The server that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) run: RunId,
    /// Not 0.
    pub(super) port: u16,
}

impl Start {
    /// Parses the first message of a stream.
    pub(super) fn parse(request: ForwardPortRequest) -> Result<Self, Refusal> {
        let Some(Event::Start(start)) = request.event else {
            return Err(Refusal::invalid("start", "must be the first message of the stream"));
        };
        let run = RunId::parse(&start.run_id)?;
        match u16::try_from(start.port) {
            Ok(port) if port > 0 => Ok(Self { run, port }),
            _ => Err(Refusal::invalid("start.port", "must be from 1 to 65535")),
        }
    }
}

/// Parses a later message.
pub(super) fn data(request: ForwardPortRequest) -> Result<Vec<u8>, Refusal> {
    match request.event {
        Some(Event::Data(data)) if data.len() > MAX_DATA => {
            Err(Refusal::invalid("data", format!("is longer than {MAX_DATA} bytes: send it in pieces")))
        }
        Some(Event::Data(data)) => Ok(data),
        Some(Event::Start(_)) => Err(Refusal::invalid("start", "may come only once")),
        None => Err(Refusal::invalid("event", "is missing, or unknown to this daemon")),
    }
}

#[cfg(test)]
mod tests {
    use identity::RunId;
    use operations::Reason;
    use wire::v1::forward_port_request::Event;
    use wire::v1::{ForwardPortRequest, ForwardStart};

    use super::{MAX_DATA, Start, data};

    fn start(run_id: &str, port: u32) -> ForwardPortRequest {
        ForwardPortRequest { event: Some(Event::Start(ForwardStart { run_id: run_id.to_owned(), port })) }
    }

    #[test]
    fn a_start_has_a_run_and_a_port() {
        let run = RunId::new();
        for port in [1, 8_000, 65_535] {
            let parsed = Start::parse(start(&run.to_string(), port)).unwrap();
            assert_eq!((parsed.run, u32::from(parsed.port)), (run, port));
        }
        for port in [0, 65_536, 65_536 + 80, u32::MAX] {
            let refusal = Start::parse(start(&run.to_string(), port)).unwrap_err();
            assert_eq!(refusal.reason, Reason::InvalidArgument, "{port}");
        }
        for (run, reason) in
            [("", Reason::InvalidArgument), ("../..", Reason::NotFound), ("127.0.0.1", Reason::NotFound)]
        {
            assert_eq!(Start::parse(start(run, 80)).unwrap_err().reason, reason, "{run}");
        }
        for event in [None, Some(Event::Data(b"GET /".to_vec()))] {
            let refusal = Start::parse(ForwardPortRequest { event }).unwrap_err();
            assert_eq!(refusal.reason, Reason::InvalidArgument);
        }
    }

    #[test]
    fn later_messages_are_bytes_within_a_bound() {
        let of = |bytes: usize| ForwardPortRequest { event: Some(Event::Data(vec![7; bytes])) };
        for bytes in [0, 1, MAX_DATA] {
            assert_eq!(data(of(bytes)).unwrap(), vec![7; bytes]);
        }
        let again = start(&RunId::new().to_string(), 80);
        for bad in [of(MAX_DATA + 1), again, ForwardPortRequest { event: None }] {
            assert_eq!(data(bad).unwrap_err().reason, Reason::InvalidArgument);
        }
    }
}
