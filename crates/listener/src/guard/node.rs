//! The node of a fleet that a request is for, and the node that answers.
//!
//! A request for another node is refused before its credential is checked: tokens of another daemon are unknown here,
//! and would be recorded as an attempt to get in. Node numbers are no secret, because each id has one.

use node_id::{NODE_METADATA, NodeId};
use refusal::Refusal;
use tonic::codegen::http::{HeaderMap, HeaderValue};

/// Refuses a request whose metadata names a node other than `own`.
pub(super) fn check(headers: &HeaderMap, own: Option<NodeId>) -> Result<(), Refusal> {
    let mut named = headers.get_all(NODE_METADATA).iter();
    let asked = match (named.next(), named.next()) {
        (None, _) => return Ok(()),
        (Some(one), None) => one.to_str().ok().and_then(|text| text.parse::<NodeId>().ok()),
        // A proxy on the way may have routed by the other one.
        (Some(_), Some(_)) => None,
    };
    match asked {
        Some(asked) if Some(asked) == own => Ok(()),
        Some(asked) => Err(Refusal::wrong_node(asked, own)),
        None => Err(Refusal::invalid(NODE_METADATA, "must be one node's number, from 1 to 65535, once")),
    }
}

/// Names this process in the metadata of an answer, if it is a node.
pub(super) fn name(headers: &mut HeaderMap, own: Option<NodeId>) {
    if let Some(own) = own {
        headers.insert(NODE_METADATA, HeaderValue::from(own.get()));
    }
}

#[cfg(test)]
mod tests {
    use node_id::{NODE_METADATA, NodeId};
    use operations::Reason;
    use refusal::Refusal;
    use tonic::codegen::http::{HeaderMap, HeaderValue};

    use super::{check, name};

    fn node(number: u16) -> NodeId {
        NodeId::try_from(number).unwrap()
    }

    fn checked(named: &[&[u8]], own: Option<NodeId>) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for value in named {
            headers.append(NODE_METADATA, HeaderValue::from_bytes(value).unwrap());
        }
        check(&headers, own)
    }

    #[test]
    fn requests_for_this_node_or_for_none_go_on() {
        assert_eq!(checked(&[], None), Ok(()));
        assert_eq!(checked(&[], Some(node(7))), Ok(()));
        assert_eq!(checked(&[b"7"], Some(node(7))), Ok(()));
    }

    #[test]
    fn a_request_for_another_node_is_refused_with_both() {
        let refused = checked(&[b"7"], Some(node(8))).unwrap_err();
        assert_eq!(refused.reason, Reason::WrongNode);
        assert_eq!(refused.metadata, [("asked".into(), "7".to_owned()), ("node".into(), "8".to_owned())]);
        let without = checked(&[b"7"], None).unwrap_err();
        assert_eq!(without.reason, Reason::WrongNode);
        assert_eq!(without.metadata, [("asked".into(), "7".to_owned())]);
    }

    #[test]
    fn a_malformed_node_is_refused_everywhere() {
        let malformed: [&[&[u8]]; 11] = [
            &[b""],
            &[b"0"],
            &[b"07"],
            &[b"+7"],
            &[b"7 "],
            &[b"65536"],
            &[b"7,7"],
            &[b"seven"],
            &[b"\xff"],
            &[b"7", b"7"],
            &[b"7", b"8"],
        ];
        for named in malformed {
            for own in [None, Some(node(7))] {
                let refused = checked(named, own).unwrap_err();
                assert_eq!(refused.reason, Reason::InvalidArgument, "{named:?}");
                assert_eq!(refused.metadata, [("field".into(), NODE_METADATA.to_owned())]);
            }
        }
    }

    #[test]
    fn an_answer_names_the_node_once() {
        let mut headers = HeaderMap::new();
        name(&mut headers, None);
        assert!(headers.is_empty());
        name(&mut headers, Some(node(65_535)));
        name(&mut headers, Some(node(65_535)));
        let named: Vec<&HeaderValue> = headers.get_all(NODE_METADATA).iter().collect();
        assert_eq!(named, ["65535"]);
    }
}
