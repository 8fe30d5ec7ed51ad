//! The first frame of each direction. It proves that both sides are of one release, and that the answer belongs to this question.

use operations::Environment;
use wire::worker::v1::{FromWorker, Hello, ToWorker, from_worker, to_worker};
use worker_protocol::PROTOCOL;

use crate::fault::Fault;

/// Returns the answer to the first frame, if that is a Hello of this protocol, and the variables of the run.
///
/// `channel` is the number of an offered channel, or 0.
pub(crate) fn answer(first: ToWorker, channel: u32) -> Result<(FromWorker, Environment), Fault> {
    let ToWorker { id: 0, body: Some(to_worker::Body::Hello(hello)) } = first else {
        return Err(Fault::Unexpected("the first frame is not a hello"));
    };
    if hello.protocol != PROTOCOL {
        return Err(Fault::Unexpected("the daemon speaks another version of the protocol"));
    }
    let environment = Environment::from_daemon(hello.environment);
    let hello = Hello {
        protocol: PROTOCOL,
        nonce: hello.nonce,
        pid: std::process::id(),
        channel,
        ..Hello::default()
    };
    Ok((FromWorker { id: 0, body: Some(from_worker::Body::Hello(hello)) }, environment))
}
