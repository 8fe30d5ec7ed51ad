//! The first frame of each direction. It proves that both sides are of one release, and that the answer belongs to this question.

use operations::Environment;
use wire::worker::v1::{FromWorker, Hello, ToWorker, Variables, from_worker, to_worker};
use worker_protocol::PROTOCOL;

use crate::fault::Fault;

/// Returns the answer to the first frame, if that is a Hello of this protocol, and the variables of the run unless they follow.
///
/// `channel` is the number of an offered channel, or 0.
pub(crate) fn answer(first: ToWorker, channel: u32) -> Result<(FromWorker, Option<Environment>), Fault> {
    let ToWorker { id: 0, body: Some(to_worker::Body::Hello(hello)) } = first else {
        return Err(Fault::Unexpected("the first frame is not a hello"));
    };
    if hello.protocol != PROTOCOL {
        return Err(Fault::Unexpected("the daemon speaks another version of the protocol"));
    }
    if hello.variables_follow && !hello.environment.is_empty() {
        return Err(Fault::Unexpected("a hello whose variables follow has some"));
    }
    let environment = (!hello.variables_follow).then(|| Environment::from_daemon(hello.environment));
    let hello = Hello {
        protocol: PROTOCOL,
        nonce: hello.nonce,
        pid: std::process::id(),
        channel,
        ..Hello::default()
    };
    Ok((FromWorker { id: 0, body: Some(from_worker::Body::Hello(hello)) }, environment))
}

/// Returns the variables of the run from the frame that follows a hello without them, within the bounds of every environment.
pub(crate) fn variables(variables: Variables) -> Result<Environment, Fault> {
    Environment::parse("variables", variables.environment)
        .map_err(|_| Fault::Unexpected("variables of the run beyond their bounds"))
}
