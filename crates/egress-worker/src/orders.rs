//! The answers of the daemon about one connection.

use std::cell::RefCell;
use std::net::IpAddr;

use egress_rules::PathPattern;
use tokio::sync::Notify;
use wire::worker::v1 as proto;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::inspect::Scheme as ProtoScheme;
use worker_protocol::address::{MAX_ADDRESSES, address};

use crate::answer::Answers;
use crate::broken::Broken;
use crate::handles::Connected;

/// Most bytes of each text for a proxy.
const TUNNEL: usize = 1024;

/// The scheme of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Https,
    Http,
}

/// The way in which a connection is looked at.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(crate) struct Inspect {
    pub(crate) scheme: Scheme,
    /// Canonical name; empty for an address that a rule names.
    pub(crate) name: String,
    /// Methods that a request may have; empty: all.
    pub(crate) methods: Vec<String>,
    /// Lists of patterns of paths. A request has to match one of each list.
    pub(crate) paths: Vec<Vec<PathPattern>>,
    /// Server that requests go to in place of the host.
    pub(crate) upstream: Option<Upstream>,
    /// True if the connection's TLS is ended here.
    pub(crate) is_opened: bool,
    /// True if the daemon decides about each request.
    pub(crate) asks: bool,
    /// True if the tokens that responses say are reported.
    pub(crate) meters: bool,
    /// True if each request has to be one of git.
    pub(crate) is_git: bool,
}

/// A server that requests are sent to in place of the host that the program names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upstream {
    pub(crate) tls: bool,
    /// Name or address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path that goes before the path of a request, without a slash at its end.
    pub(crate) path: String,
}

/// The way to a server.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    /// Addresses to connect to. None if the daemon has connected.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    /// The connection, if the daemon has made it.
    pub(crate) connected: Option<Connected>,
    /// Present if the addresses are those of an HTTP proxy.
    pub(crate) tunnel: Option<proto::Tunnel>,
}

fn patterns(of: &[String]) -> Result<Vec<PathPattern>, Broken> {
    of.iter().map(|pattern| PathPattern::parse(pattern).map_err(|_| Broken)).collect()
}

impl TryFrom<proto::Inspect> for Inspect {
    type Error = Broken;

    fn try_from(inspect: proto::Inspect) -> Result<Self, Broken> {
        let scheme = match inspect.scheme() {
            ProtoScheme::Https => Scheme::Https,
            ProtoScheme::Http => Scheme::Http,
            ProtoScheme::Unspecified => return Err(Broken),
        };
        let upstream = inspect.upstream.map(Upstream::try_from).transpose()?;
        let is_tls = inspect.open || upstream.as_ref().is_some_and(|upstream| upstream.tls);
        if inspect.git && !(is_tls && inspect.ask) {
            return Err(Broken);
        }
        if upstream.is_some() && scheme != Scheme::Http || inspect.open && scheme != Scheme::Https {
            return Err(Broken);
        }
        Ok(Self {
            scheme,
            name: inspect.name,
            methods: inspect.methods,
            paths: inspect.paths.iter().map(|list| patterns(&list.patterns)).collect::<Result<_, _>>()?,
            upstream,
            is_opened: inspect.open,
            asks: inspect.ask,
            meters: inspect.meter,
            is_git: inspect.git,
        })
    }
}

impl TryFrom<proto::Upstream> for Upstream {
    type Error = Broken;

    fn try_from(upstream: proto::Upstream) -> Result<Self, Broken> {
        let port = u16::try_from(upstream.port).ok().filter(|port| *port > 0).ok_or(Broken)?;
        let path = upstream.path;
        let is_path = path.is_empty() || path.starts_with('/') && !path.ends_with('/');
        if !is_path || !is_visible(&path) || upstream.host.is_empty() || !is_visible(&upstream.host) {
            return Err(Broken);
        }
        Ok(Self { tls: upstream.tls, host: upstream.host, port, path })
    }
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl TryFrom<proto::Dial> for Dial {
    type Error = Broken;

    /// Reads a way without its connection.
    fn try_from(dial: proto::Dial) -> Result<Self, Broken> {
        if dial.handle > 0 && (dial.tunnel.is_some() || !dial.addresses.is_empty()) {
            return Err(Broken);
        }
        let port = u16::try_from(dial.port).ok().filter(|port| *port > 0).ok_or(Broken)?;
        if dial.addresses.is_empty() != (dial.handle > 0) || dial.addresses.len() > MAX_ADDRESSES {
            return Err(Broken);
        }
        let addresses =
            dial.addresses.iter().map(|bytes| address(bytes).ok_or(Broken)).collect::<Result<_, _>>()?;
        let is_text =
            |text: &String| text.len() <= TUNNEL && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if dial.tunnel.iter().any(|tunnel| !is_text(&tunnel.authority) || !is_text(&tunnel.authorization)) {
            return Err(Broken);
        }
        Ok(Self { addresses, port, connected: None, tunnel: dial.tunnel })
    }
}

/// The end of a connection by the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// Body of a response; empty to reset the connection.
    pub(crate) http_body: String,
}

impl From<End> for Cause {
    fn from(_: End) -> Self {
        Self::Ended
    }
}

/// The orders for one connection. The first order of each kind counts.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// The answers about single requests.
    pub(crate) answers: Answers,
    given: RefCell<Given>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Given {
    inspect: Option<Inspect>,
    dial: Option<Dial>,
    end: Option<End>,
    awaits_review: bool,
}

impl Orders {
    pub(crate) fn inspect(&self, inspect: Inspect) {
        self.give(|given| {
            given.inspect.get_or_insert(inspect);
        });
    }

    pub(crate) fn dial(&self, dial: Dial) {
        self.give(|given| {
            given.dial.get_or_insert(dial);
        });
    }

    pub(crate) fn end(&self, end: End) {
        self.give(|given| {
            given.end.get_or_insert(end);
        });
    }

    pub(crate) fn await_review(&self) {
        self.give(|given| given.awaits_review = true);
    }

    fn give(&self, order: impl FnOnce(&mut Given)) {
        order(&mut self.given.borrow_mut());
        self.changed.notify_waiters();
    }

    /// Waits for the rule. `None` if the addresses come without one. The end of the connection goes before it.
    pub(crate) async fn inspection(&self) -> Result<Option<Inspect>, End> {
        let has_come = |given: &Given| given.inspect.is_some() || given.dial.is_some();
        self.wait(|given| has_come(given).then(|| given.inspect.clone())).await
    }

    /// Waits until a reviewer is asked.
    pub(crate) async fn review(&self) -> Result<(), End> {
        self.wait(|given| given.awaits_review.then_some(())).await
    }

    /// Waits for the addresses. The end of the connection goes before them.
    pub(crate) async fn addresses(&self) -> Result<Dial, End> {
        self.wait(|given| given.dial.clone()).await
    }

    /// Waits until the daemon ends the connection.
    pub(crate) async fn ended(&self) -> End {
        match self.wait(|_| None::<std::convert::Infallible>).await {
            Err(end) => end,
        }
    }

    async fn wait<T>(&self, of: impl Fn(&Given) -> Option<T>) -> Result<T, End> {
        loop {
            // Registered before the look, so that no order falls between the two.
            let changed = self.changed.notified();
            {
                let given = self.given.borrow();
                if let Some(end) = &given.end {
                    return Err(end.clone());
                }
                if let Some(order) = of(&given) {
                    return Ok(order);
                }
            }
            changed.await;
        }
    }
}
