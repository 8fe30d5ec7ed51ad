//! The one table from the client's errors to [`EngineError`].

use std::error::Error as StdError;
use std::io;

use bollard::errors::Error;

use crate::engine::EngineError;
use crate::ids::Endpoint;

/// Longest message of the engine that is kept, in characters.
const LONGEST_MESSAGE: usize = 2000;

pub(super) fn translate(attempt: &'static str, endpoint: &Endpoint, error: Error) -> EngineError {
    match error {
        Error::DockerResponseServerError { status_code, message } => {
            let message = bounded(&message);
            match status_code {
                404 => EngineError::NotFound { attempt },
                409 => EngineError::Conflict { attempt, message },
                status => EngineError::Api { attempt, status, message },
            }
        }
        Error::DockerStreamError { error } => {
            EngineError::Api { attempt, status: 200, message: bounded(&error) }
        }
        Error::SocketNotFoundError(path) => {
            unreachable(endpoint, io::Error::new(io::ErrorKind::NotFound, path).into())
        }
        Error::IOError { err } => unreachable(endpoint, err.into()),
        Error::HyperLegacyError { err } => unreachable(endpoint, err.into()),
        Error::HyperResponseError { err } => unreachable(endpoint, err.into()),
        other => malformed(attempt, &other),
    }
}

pub(super) fn malformed(attempt: &'static str, what: &dyn StdError) -> EngineError {
    EngineError::Malformed { attempt, what: bounded(&what.to_string()) }
}

fn unreachable(endpoint: &Endpoint, source: Box<dyn StdError + Send + Sync>) -> EngineError {
    let mend = match root_kind(source.as_ref()) {
        Some(io::ErrorKind::NotFound) => {
            "the socket does not exist; start Docker Engine, or correct the endpoint in the configuration"
        }
        Some(io::ErrorKind::PermissionDenied) => {
            "this user may not open the socket; run as root or as a member of the socket's group"
        }
        Some(io::ErrorKind::ConnectionRefused) => "no process listens on the socket; start Docker Engine",
        _ => "the connection broke; see whether Docker Engine is running and healthy",
    };
    EngineError::Unreachable { endpoint: endpoint.to_string(), mend, source }
}

/// Returns the kind of the innermost I/O error.
fn root_kind(error: &(dyn StdError + 'static)) -> Option<io::ErrorKind> {
    std::iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>().map(io::Error::kind))
        .last()
}

fn bounded(message: &str) -> String {
    message.chars().take(LONGEST_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(status_code: u16) -> EngineError {
        let error = Error::DockerResponseServerError { status_code, message: "m".repeat(5000) };
        translate("try", &Endpoint::parse("unix:///s").unwrap(), error)
    }

    #[test]
    fn statuses_become_kinds_and_messages_are_bounded() {
        assert!(matches!(api(404), EngineError::NotFound { attempt: "try" }));
        assert!(matches!(api(409), EngineError::Conflict { message, .. } if message.len() == 2000));
        assert!(matches!(api(500), EngineError::Api { status: 500, message, .. } if message.len() == 2000));
    }

    #[test]
    fn an_unreachable_engine_is_reported_with_advice() {
        let endpoint = Endpoint::parse("unix:///nowhere/docker.sock").unwrap();
        let error = crate::Engine::connect(&endpoint).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no engine answers at unix:///nowhere/docker.sock: the socket does not exist; start Docker Engine, \
             or correct the endpoint in the configuration"
        );
    }
}
