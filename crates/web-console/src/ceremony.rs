//! Messages between the daemon and the authenticator of a browser, by `assets/passkey.js`.
//!
//! Answers for the script are JSON with bytes in hexadecimal, or a plain sentence that says why not. The browser's answers are fields of
//! forms.

use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::CONTENT_TYPE;
use wire::v1::PasskeyProof;

use crate::error::Problem;
use crate::failure::status_of;
use crate::form::Fields;

/// Returns an answer for the script.
pub(crate) fn answer(result: Result<Value, tonic::Status>) -> Response {
    match result {
        Ok(value) => ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response(),
        Err(status) => {
            let plain = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
            (status_of(status.code()), plain, status.message().to_owned()).into_response()
        }
    }
}

/// Returns the answer of the authenticator in a form, if it has one.
pub(crate) fn proof(fields: &Fields) -> Result<Option<PasskeyProof>, Problem> {
    if fields.get("credential_id").is_empty() {
        return Ok(None);
    }
    Ok(Some(PasskeyProof {
        credential_id: bytes(fields, "credential_id")?,
        authenticator_data: bytes(fields, "authenticator_data")?,
        client_data_json: bytes(fields, "client_data_json")?,
        signature: bytes(fields, "signature")?,
    }))
}

/// Returns the bytes of a field in hexadecimal.
pub(crate) fn bytes(fields: &Fields, name: &str) -> Result<Vec<u8>, Problem> {
    let bad =
        |_| Problem::Bad(StatusCode::BAD_REQUEST, "A field of the browser's answer is malformed: try again.");
    hex::decode(fields.get(name)).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::{bytes, proof};
    use crate::form::Fields;

    #[test]
    fn a_proof_is_whole_or_absent_and_hexadecimal() {
        let parse = |text: &str| Fields::parse(text.as_bytes());
        assert!(proof(&parse("comment=x")).unwrap().is_none());
        let whole = parse("credential_id=ab&authenticator_data=01&client_data_json=7b7d&signature=30");
        let found = proof(&whole).unwrap().unwrap();
        assert_eq!((found.credential_id, found.client_data_json), (vec![0xab], b"{}".to_vec()));
        for bad in ["credential_id=a", "credential_id=zz", "credential_id=ab&signature=%00"] {
            assert!(proof(&parse(bad)).is_err(), "{bad}");
        }
        assert!(bytes(&parse("a=0"), "a").is_err());
    }
}
