//! Admits requests by their tokens.

use std::pin::Pin;

use admission::Owner;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use tonic::codegen::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use tonic::codegen::http::{HeaderMap, Response, StatusCode};

use super::held::ResponseBody;
use crate::token::RunToken;
use api_access::Api;

type Opens = dyn Fn(&RunToken) -> Option<Opened> + Send + Sync;
type TurnedAway = dyn Fn(Option<&RunToken>) + Send + Sync;

/// The daemon's part of the endpoint.
pub struct Access {
    /// Access to the API that identifies its client by the token alone.
    pub api: Api,
    /// Returns what a token opens, if its run lives. Called for each request.
    pub opens: Box<Opens>,
    /// Notes that a client has sent an invalid token; `None` if it is malformed.
    pub turned_away: Box<TurnedAway>,
}

/// The holder of a valid token.
pub struct Opened {
    /// Owners to which the holder's connections count.
    pub owners: Vec<Owner>,
    /// Resolves when the token is no longer valid because its run has another one.
    pub replaced: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Returns the token of a request, if it is valid (RFC 6750), and the owners to which the connection counts.
pub(super) fn admit(access: &Access, headers: &HeaderMap) -> Result<(RunToken, Vec<Owner>), Refused> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (shown.next(), shown.next()) else {
        return Err(Refused("Bearer realm=\"cofferdam\""));
    };
    let token = value.to_str().ok().and_then(bearer).and_then(|token| RunToken::parse(token).ok());
    if let Some(token) = &token
        && let Some(opened) = (access.opens)(token)
    {
        return Ok((token.clone(), opened.owners));
    }
    (access.turned_away)(token.as_ref());
    Err(Refused::bad_token())
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// A refusal with the challenge that names the required credentials.
pub(super) struct Refused(&'static str);

impl Refused {
    pub(super) fn bad_token() -> Self {
        Self("Bearer realm=\"cofferdam\", error=\"invalid_token\"")
    }
}

impl From<Refused> for Response<ResponseBody> {
    fn from(Refused(challenge): Refused) -> Self {
        let message = "send the token of a live run: Authorization: Bearer TOKEN";
        let mut response = plain(StatusCode::UNAUTHORIZED, message);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        response
    }
}

/// Returns a short response in plain text.
pub(super) fn plain(status: StatusCode, message: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(Bytes::from_static(message.as_bytes())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
