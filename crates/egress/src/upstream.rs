//! The HTTP proxy through which the host's connections go.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use egress_rules::Destination;

/// Most bytes of user and password.
const CREDENTIALS: usize = 512;

/// An HTTP proxy that connects to servers (RFC 9110, CONNECT).
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    pub host: Destination,
    pub port: u16,
    /// Value of `Proxy-Authorization`; empty for none.
    authorization: String,
}

impl UpstreamProxy {
    /// `credentials` are `user:password` in ASCII (RFC 7617), which the proxy gets with each connection.
    pub fn new(host: Destination, port: u16, credentials: Option<&str>) -> Result<Self, &'static str> {
        let authorization = match credentials {
            None => String::new(),
            Some(text)
                if text.len() <= CREDENTIALS
                    && text.contains(':')
                    && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) =>
            {
                format!("Basic {}", BASE64_STANDARD.encode(text))
            }
            Some(_) => return Err("must be one line, `user:password`, of at most 512 ASCII characters"),
        };
        Ok(Self { host, port, authorization })
    }

    pub(crate) fn authorization(&self) -> &str {
        &self.authorization
    }
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpstreamProxy({}:{})", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use egress_rules::Destination;

    use super::UpstreamProxy;

    #[test]
    fn credentials_are_encoded_and_not_shown() {
        let made = |credentials: Option<&str>| {
            UpstreamProxy::new(Destination::parse("proxy.example.org").unwrap(), 3128, credentials)
        };
        let proxy = made(Some("a:b")).unwrap();
        assert_eq!(proxy.authorization(), "Basic YTpi");
        assert_eq!(format!("{proxy:?}"), "UpstreamProxy(proxy.example.org:3128)");
        assert_eq!(made(None).unwrap().authorization(), "");
        for bad in ["", "a", "a:b\r\nX: y", "a:\u{e9}", &"a:".repeat(257)] {
            assert!(made(Some(bad)).is_err(), "{bad}");
        }
    }
}
