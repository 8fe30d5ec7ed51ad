//! The ids that a request names, by the descriptors of the API.

use prost_reflect::{DynamicMessage, Value};

use crate::json::POOL;

/// Fields with the id of something that a daemon has. Ids that a client makes, such as a request's, are not among them.
const FIELDS: [&str; 14] = [
    "alert_id",
    "approval_id",
    "base_id",
    "call_id",
    "checkpoint_id",
    "consent_id",
    "lift_permission_id",
    "permission_id",
    "process_id",
    "run_id",
    "run_ids",
    "session_id",
    "token_id",
    "workspace_id",
];

/// Levels of messages within a request that are searched.
const DEPTH: usize = 3;

/// Returns the ids in an encoded request of a method, such as `/cofferdam.v1.RunService/GetRun`: those of an outer
/// message before those of an inner one, and within a message in the order of its fields.
///
/// Returns none for a method that the API does not have, and for bytes that are no request of it.
#[must_use]
pub fn named(method: &str, request: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let Some(request) = decode(method, request) else { return found };
    let mut level = vec![request];
    for _ in 0..DEPTH {
        let mut inner = Vec::new();
        for message in level {
            let mut fields: Vec<_> = message.fields().collect();
            fields.sort_by_key(|(field, _)| field.number());
            for (field, value) in fields {
                match value {
                    Value::String(id) if FIELDS.contains(&field.name()) => found.push(id.clone()),
                    Value::List(ids) if FIELDS.contains(&field.name()) => {
                        found.extend(ids.iter().filter_map(Value::as_str).map(str::to_owned));
                    }
                    Value::Message(message) => inner.push(message.clone()),
                    _ => {}
                }
            }
        }
        level = inner;
    }
    found
}

fn decode(method: &str, request: &[u8]) -> Option<DynamicMessage> {
    let (service, method) = method.strip_prefix('/')?.split_once('/')?;
    let service = POOL.as_ref().ok()?.get_service_by_name(service)?;
    let method = service.methods().find(|known| known.name() == method)?;
    DynamicMessage::decode(method.input(), request).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::{FIELDS, POOL, named};
    use crate::v1;

    #[test]
    fn outer_ids_come_first() {
        let request = v1::CallRequest {
            run_id: "run".into(),
            request_id: "request".into(),
            agent_id: "agent".into(),
            request: Some(
                v1::operation::Kind::Session(v1::SessionRequest {
                    session_id: "session".into(),
                    ..Default::default()
                })
                .into(),
            ),
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        assert_eq!(named("/cofferdam.v1.ToolService/Call", &bytes), ["run", "session"]);
        let compared = v1::CompareRunsRequest { run_ids: vec!["one".into(), "two".into()] };
        let bytes = compared.encode_to_vec();
        assert_eq!(named("/cofferdam.v1.CheckpointService/CompareRuns", &bytes), ["one", "two"]);
    }

    #[test]
    fn what_is_no_request_names_nothing() {
        let bytes = v1::GetRunRequest { run_id: "run".into() }.encode_to_vec();
        for method in ["", "/", "RunService/GetRun", "/cofferdam.v1.RunService/None", "/other.Service/GetRun"]
        {
            assert_eq!(named(method, &bytes), [""; 0], "{method}");
        }
        assert_eq!(named("/cofferdam.v1.RunService/GetRun", b"\x0a\xff"), [""; 0]);
    }

    /// A new kind of id has to be decided on: one that a daemon makes belongs to `FIELDS`.
    #[test]
    fn every_id_in_a_request_is_one_of_the_daemon_or_of_the_client() {
        let others = [
            "agent_id",
            "correlation_id",
            "credential_id",
            "current_node_id",
            "image_id",
            "request_id",
            "subscription_id",
            "task_id",
            "upload_id",
        ];
        let known: BTreeSet<&str> = FIELDS.into_iter().chain(others).collect();
        let mut seen = BTreeSet::new();
        let mut open = Vec::new();
        for service in POOL.as_ref().unwrap().services() {
            open.extend(service.methods().map(|method| method.input()));
        }
        let mut messages = BTreeSet::new();
        while let Some(message) = open.pop() {
            if !messages.insert(message.full_name().to_owned()) {
                continue;
            }
            for field in message.fields() {
                if field.name().ends_with("_id") || field.name().ends_with("_ids") {
                    assert!(known.contains(field.name()), "{}", field.full_name());
                    seen.insert(field.name().to_owned());
                }
                if let prost_reflect::Kind::Message(inner) = field.kind() {
                    open.push(inner);
                }
            }
        }
        let unused: Vec<_> = known.iter().filter(|name| !seen.contains(**name)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
