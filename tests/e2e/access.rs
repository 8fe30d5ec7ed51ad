//! The table of methods × roles × credentials, tried whole: every cell of it, on every kind of connection.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::{Bearer, Certificates, Clients, Daemon, Issuer, Setup, as_user, reason, requests, v1};
use identity::{Credential, METHODS, Role, Roles};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// What the guard says when it lets nothing through.
const CLOSED: [&str; 5] = [
    "has no role that allows this",
    "no token and the connection no client certificate",
    "a run token gives access to the tools of its run",
    "a token that is limited to runs or profiles gives access to methods about runs only",
    "accepts no token",
];

/// An empty request; the answer's messages are left unread.
async fn ask(channel: &Channel, method: &str, bearer: Option<&Bearer>) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::try_from(method).unwrap();
    let request = bearer.map_or_else(|| tonic::Request::new(()), |bearer| bearer.shows(()));
    client.server_streaming(request, path, ProstCodec::<(), ()>::default()).await.map(|_| ())
}

/// The same, and again while the log's index is made anew, as another method here has asked for.
async fn ask_patiently(channel: &Channel, method: &str, bearer: Option<&Bearer>) -> Result<(), Status> {
    let asked = async {
        loop {
            match ask(channel, method, bearer).await {
                Err(status) if reason(&status) == "AUDIT_UNAVAILABLE" => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                answer => return answer,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asked).await.expect("the index is not made")
}

/// The methods that this connection opens.
async fn opened(channel: &Channel, bearer: Option<&Bearer>) -> Vec<&'static str> {
    let mut opened = Vec::new();
    for method in METHODS {
        match ask_patiently(channel, method.path, bearer).await {
            Err(status) if CLOSED.iter().any(|closed| status.message().contains(closed)) => {
                assert_eq!(status.code(), Code::PermissionDenied, "{}", method.path);
                assert_eq!(reason(&status), "PERMISSION_DENIED", "{}", method.path);
            }
            Err(status) if status.code() == Code::Unknown || status.code() == Code::Unavailable => {
                panic!("{}: {status:?}", method.path)
            }
            _ => opened.push(method.path),
        }
    }
    opened
}

/// The methods that the table opens.
fn open(credential: Credential, roles: Roles) -> Vec<&'static str> {
    let opens = |method: &&identity::Method| {
        let needs_no_role = credential == Credential::RunToken
            || credential == Credential::Certificate && method.admits_certificates;
        method.credentials.contains(&credential) && (needs_no_role || roles.has_any(method.roles))
    };
    METHODS.iter().filter(opens).map(|method| method.path).collect()
}

/// Each role by itself, none, and all.
fn all_roles() -> BTreeMap<&'static str, Roles> {
    let each = Role::ALL.map(|(name, role)| (name, Roles::none().with(role)));
    each.into_iter().chain([("nobody", Roles::none()), ("everybody", Roles::all())]).collect()
}

/// Bearers with these roles, and what each is: API tokens and tokens of an issuer, wide and limited.
async fn bearers(
    daemon: &Daemon,
    issuer: &Issuer,
    name: &str,
    roles: Roles,
) -> Vec<(String, Credential, Bearer)> {
    let mut bearers = Vec::new();
    for (credential, profiles) in
        [(Credential::Token, vec![]), (Credential::NarrowToken, vec!["open".to_owned()])]
    {
        let narrow = credential == Credential::NarrowToken;
        let subject = if narrow { format!("narrow-{name}") } else { name.to_owned() };
        let signed = issuer.token(&subject, &[], Duration::from_secs(3_600));
        bearers.push((format!("{credential:?} of an issuer"), credential, Bearer::new(&signed)));
        if !roles.is_empty() {
            let named = roles.names().into_iter().map(str::to_owned).collect();
            let token = v1::Token { name: name.to_owned(), roles: named, profiles, ..Default::default() };
            let (_, secret) = daemon.token(token, None).await;
            bearers.push((format!("{credential:?}"), credential, Bearer::new(&secret)));
        }
    }
    bearers
}

/// What an issuer's tokens are worth: each subject has the roles of its name.
fn grants(names: &BTreeMap<&'static str, Roles>) -> String {
    let with_roles = names.iter().filter(|(_, roles)| !roles.is_empty());
    let grants = with_roles.flat_map(|(name, roles)| {
        let roles = roles.names().join(", ");
        [
            format!("{{ claim: sub, value: {name}, roles: [{roles}] }}"),
            format!("{{ claim: sub, value: narrow-{name}, roles: [{roles}], profiles: [open] }}"),
        ]
    });
    grants.collect::<Vec<_>>().join(", ")
}

/// A run's token.
async fn run_token(own: &Clients) -> Bearer {
    let run = v1::CreateRunRequest { issue_token: true, ..requests::managed("open") };
    Bearer::new(&own.clone().runs.create_run(run).await.unwrap().into_inner().token)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cell_of_methods_and_roles_and_transports_is_as_the_table_says() {
    let names = all_roles();
    let clients: Vec<_> = names.keys().copied().collect();
    let certificates = Certificates::make(&clients);
    let entries = names.iter().zip(12_300..).flat_map(|((name, roles), uid)| {
        let roles = roles.names().join(", ");
        [
            format!("{{ uid: {uid}, roles: [{roles}] }}"),
            format!("{{ certificate: {name}, roles: [{roles}] }}"),
        ]
    });
    let issuer = Issuer::default();
    let access = format!("access: [{}]\n", entries.collect::<Vec<_>>().join(", "));
    let config = access + &issuer.config_with_file(&grants(&names));
    let tcp = certificates.listen("tokens: {}, connections_per_second: 1000");
    let daemon = Daemon::start_with(Setup { config, tcp, ..Default::default() }).await;
    daemon.expose();
    let anonymous = certificates.connect(&daemon, None).await.unwrap();
    let own = daemon.connect().await;
    let mut cells = 0;
    let mut check = |how: &str, who: &str, opened: Vec<&str>, open: Vec<&str>| {
        assert_eq!(opened, open, "{who} by {how}");
        cells += METHODS.len();
    };

    for ((name, roles), uid) in names.iter().zip(12_300..) {
        let socket = daemon.socket();
        let by_socket = as_user(uid, &socket, async |clients| opened(&clients.channel, None).await).await;
        check("the Unix socket", name, by_socket, open(Credential::Uid, *roles));
        let channel = certificates.connect(&daemon, Some(name)).await.unwrap();
        check("certificate", name, opened(&channel, None).await, open(Credential::Certificate, *roles));
        for (how, credential, bearer) in bearers(&daemon, &issuer, name, *roles).await {
            let open = || open(credential, *roles);
            check(&how, name, opened(&anonymous, Some(&bearer)).await, open());
            check(&how, name, opened(&own.channel, Some(&bearer)).await, open());
            // It is its holder, whatever else the connection is.
            check(&how, name, opened(&channel, Some(&bearer)).await, open());
        }
    }

    let of_its_run = run_token(&own).await;
    let of_run = || open(Credential::RunToken, Roles::none());
    check("the Unix socket", "a run token", opened(&own.channel, Some(&of_its_run)).await, of_run());
    check("TLS", "a run token", opened(&anonymous, Some(&of_its_run)).await, of_run());
    assert_eq!(opened(&anonymous, None).await, Vec::<&str>::new());
    let foreign = Issuer::default().token("everybody", &[], Duration::from_secs(3_600));
    for bad in ["", "cft_x_y", "cfa_01a2003d-e913-7000-8000-00000000aaaa_AAAA", "Basic x", &foreign] {
        let bearer = Bearer::new(bad);
        for method in METHODS {
            let refused = ask(&own.channel, method.path, Some(&bearer)).await.unwrap_err();
            assert_eq!(reason(&refused), "PERMISSION_DENIED", "{bad} {}", method.path);
        }
    }
    // And what is in no row is no way in.
    let unknown = "/no.such.Service/Method";
    assert_eq!(ask(&own.channel, unknown, None).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(reason(&ask(&anonymous, unknown, None).await.unwrap_err()), "PERMISSION_DENIED");
    let run_token = ask(&own.channel, unknown, Some(&of_its_run)).await.unwrap_err();
    assert_eq!(reason(&run_token), "PERMISSION_DENIED");
    assert!(cells >= 90 * METHODS.len(), "{cells} cells");
}

/// In the clear, on this host alone: tokens of all kinds and no other credential.
#[tokio::test(flavor = "multi_thread")]
async fn every_cell_of_methods_and_roles_is_as_the_table_says_in_the_clear() {
    let (names, issuer) = (all_roles(), Issuer::default());
    let config = issuer.config_with_file(&grants(&names));
    let tcp = "address: '127.0.0.1:0', plaintext: true, tokens: {}".to_owned();
    let daemon = Daemon::start_with(Setup { config, tcp, ..Default::default() }).await;
    let channel = Channel::from_shared(daemon.url("http")).unwrap().connect().await.unwrap();
    let mut cells = 0;
    for (name, roles) in &names {
        for (how, credential, bearer) in bearers(&daemon, &issuer, name, *roles).await {
            assert_eq!(opened(&channel, Some(&bearer)).await, open(credential, *roles), "{name} by {how}");
            cells += METHODS.len();
        }
    }
    let of_its_run = run_token(&daemon.connect().await).await;
    assert_eq!(opened(&channel, Some(&of_its_run)).await, open(Credential::RunToken, Roles::none()));
    assert_eq!(opened(&channel, None).await, Vec::<&str>::new());
    assert!(cells >= 26 * METHODS.len(), "{cells} cells");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_accepts_the_configured_credentials() {
    let certificates = Certificates::make(&["ci"]);
    let config = "access: [{ certificate: ci, roles: [auditor] }]\n";
    // Certificates alone: nobody without one has a connection, and no token is accepted.
    let setup = Setup { config: config.into(), tcp: certificates.listen(""), ..Default::default() };
    let daemon = Daemon::start_with(setup).await;
    let token = v1::Token { name: "a".into(), roles: vec!["auditor".into()], ..Default::default() };
    let (_, secret) = daemon.token(token, None).await;
    let mut ci = Clients::on(certificates.connect(&daemon, Some("ci")).await.unwrap());
    assert!(ci.verify().await.intact);
    let shown = ci.audit.verify_log(Bearer::new(&secret).shows(v1::VerifyLogRequest {})).await.unwrap_err();
    assert_eq!(
        (reason(&shown).as_str(), shown.message().contains("accepts no tokens")),
        ("PERMISSION_DENIED", true)
    );
    let foreign = Certificates::make(&["ci"]);
    let pretender = foreign.client("ci");
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(pretender.join(name), certificates.client("ci").join(name)).unwrap();
    }
    for shows in [None, Some("ci")] {
        let refused = match certificates.connect(&daemon, shows).await {
            Err(_) => true,
            Ok(channel) => Clients::on(channel).audit.verify_log(v1::VerifyLogRequest {}).await.is_err(),
        };
        assert!(refused, "{shows:?}");
    }
    let mut own = daemon.connect().await;
    let with = |attempts: &[v1::AuditEvent], attempt: &str| {
        attempts.iter().filter(|event| harness::record(event)["details"]["attempt"] == attempt).count()
    };
    let are_there = |attempts: &[v1::AuditEvent]| {
        with(attempts, "bad_certificate") >= 2 && with(attempts, "token_elsewhere") == 1
    };
    let attempts = own.events_when("", "escalation_attempt", are_there).await;
    assert!(are_there(&attempts), "{attempts:?}");
    assert!(attempts.iter().all(|event| harness::record(event)["details"]["address"] == "127.0.0.1"));

    // Plain, on this host alone, by name.
    let tcp = "address: '127.0.0.1:0', plaintext: true, tokens: {}".to_owned();
    let plain = Daemon::start_with(Setup { tcp, ..Default::default() }).await;
    let token = v1::Token { name: "a".into(), roles: vec!["auditor".into()], ..Default::default() };
    let (_, secret) = plain.token(token, None).await;
    let channel = Channel::from_shared(plain.url("http")).unwrap().connect().await.unwrap();
    let mut clients = Clients::on(channel);
    assert!(clients.audit.verify_log(v1::VerifyLogRequest {}).await.is_err());
    clients.audit.verify_log(Bearer::new(&secret).shows(v1::VerifyLogRequest {})).await.unwrap();
}
