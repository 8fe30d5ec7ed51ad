//! Reads `traces`: the receiver to which the daemon exports traces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use document::{At, Fields, time_or};
use serde_json::{Value, json};
use traces::{Destination, Headers, Protocol, Share};
use webhook::Target;

use super::values::path;
use super::{seconds, secret_file};

/// Largest file of headers, bytes.
const MAX_HEADERS: u64 = 16 * 1024;

const PROTOCOLS: [(&str, Protocol); 2] = [("grpc", Protocol::Grpc), ("http", Protocol::Http)];

/// The receiver of traces. Its headers stay in their file until they are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export {
    target: Target,
    protocol: Protocol,
    /// File of headers that requests have.
    headers_file: Option<PathBuf>,
    /// Share of traces without a parent, as it was written.
    sample: String,
    pub(crate) share: Share,
    timeout: Duration,
    allow_http: bool,
}

impl Export {
    /// Reads the headers and returns the receiver.
    pub(crate) fn open(&self) -> Result<Destination, String> {
        let headers = self.headers_file.as_deref().map_or_else(|| Ok(Headers::default()), headers)?;
        Ok(Destination::new(self.target.clone(), self.protocol, headers, self.timeout))
    }

    /// Returns the section in the form of the configuration file, without the parts of the URL that may be secret.
    pub(super) fn shown(&self) -> Value {
        let protocol = PROTOCOLS.iter().find(|(_, protocol)| *protocol == self.protocol);
        let mut shown = json!({
            "endpoint": self.target.shown(),
            "protocol": protocol.map(|(name, _)| *name),
            "sample": self.sample,
            "timeout": seconds(self.timeout),
            "allow_http": self.allow_http,
        });
        if let Some(file) = &self.headers_file {
            shown["headers_file"] = json!(file);
        }
        shown
    }
}

/// Reads the section.
pub(super) fn read(top: &Fields<'_>) -> Option<Export> {
    let keys = ["endpoint", "protocol", "headers_file", "sample", "timeout", "allow_http"];
    let fields = top.get("traces")?.fields(&keys);
    let allow_http = fields.flag_or("allow_http", false);
    let target = fields
        .required("endpoint")
        .and_then(|at| Target::parse(at.text()?, allow_http).map_err(|problem| at.problem(problem)).ok());
    let headers_file = fields.get("headers_file").and_then(path);
    if let Some(Err(message)) = headers_file.as_deref().map(headers) {
        fields.at("headers_file").problem(message);
    }
    let sample = fields.get("sample").map_or_else(|| Some("1".to_owned()), At::decimal);
    let share = sample.as_deref().and_then(Share::parse);
    if share.is_none() {
        fields.at("sample").problem("must be a number from 0 to 1, such as 0.1");
    }
    let protocol = fields.get("protocol").map_or(Some(Protocol::Grpc), |at| at.one_of(&PROTOCOLS));
    let timeout = time_or(&fields, "timeout", (1, 60), 10);
    Some(Export {
        target: target?,
        protocol: protocol?,
        headers_file,
        sample: sample?,
        share: share?,
        timeout,
        allow_http,
    })
}

fn headers(file: &Path) -> Result<Headers, String> {
    let text = secret_file::read_at_most(file, MAX_HEADERS)?;
    Headers::parse(&text).map_err(|problem| format!("{}: {problem}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::testing::{keys, parse};

    #[test]
    fn traces_are_off_by_default_and_printed_as_they_are_read() {
        assert!(parse("{}").unwrap().traces.is_none());
        let config = parse("traces: { endpoint: 'http://127.0.0.1:4317/s3cret', sample: 0.1 }").unwrap();
        let shown = config.to_string();
        assert!(shown.contains("sample: '0.1'") && shown.contains("protocol: grpc"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert_eq!(parse(&shown).unwrap().to_string(), shown);
        assert!(config.traces.unwrap().open().is_ok());
    }

    #[test]
    fn every_wrong_value_is_named() {
        assert_eq!(keys("traces: {}"), ["traces"]);
        assert_eq!(keys("traces: { endpoint: 'http://collector.example.org:4317' }"), ["traces.endpoint"]);
        let with = |more: &str| format!("traces: {{ endpoint: 'http://127.0.0.1:4317', {more} }}");
        assert_eq!(keys(&with("sample: 1.5")), ["traces.sample"]);
        assert_eq!(keys(&with("sample: often")), ["traces.sample"]);
        assert_eq!(keys(&with("protocol: udp")), ["traces.protocol"]);
        assert_eq!(keys(&with("timeout: 2m")), ["traces.timeout"]);
        assert_eq!(keys(&with("url: x")), ["traces.url"]);
        assert!(parse("traces: { endpoint: 'http://collector.example.org:4317', allow_http: true }").is_ok());
    }

    #[test]
    fn headers_are_in_a_closed_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("headers");
        let text =
            format!("traces: {{ endpoint: 'http://127.0.0.1:4318', headers_file: {} }}", file.display());
        let write = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("authorization: Bearer s3cret", 0o644);
        assert_eq!(keys(&text), ["traces.headers_file"]);
        write("authorization", 0o600);
        assert_eq!(keys(&text), ["traces.headers_file"]);
        write("authorization: Bearer s3cret", 0o600);
        let config = parse(&text).unwrap();
        assert!(!config.to_string().contains("s3cret") && !format!("{config:?}").contains("s3cret"));
        assert!(config.traces.unwrap().open().is_ok());
    }
}
