//! Finds tokens by their shape. One pass over the text finds the shapes that can occur in it, by a literal that each must contain. Only
//! their patterns are run.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};
use text::floor;

use super::Finding;

/// A kind of token. The group `s` of the pattern is the secret, or the whole match if there is no such group.
struct Shape {
    name: &'static str,
    /// Literals of which every match contains one, in upper or lower case.
    anchors: &'static [&'static str],
    pattern: &'static str,
    /// Further condition that a regular expression cannot express.
    accepts: fn(&str) -> bool,
}

const fn shape(name: &'static str, anchors: &'static [&'static str], pattern: &'static str) -> Shape {
    Shape { name, anchors, pattern, accepts: |_| true }
}

const SHAPES: &[Shape] = &[
    shape(
        "private-key",
        &["private key", "secret-key-"],
        r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)|AGE-SECRET-KEY-[A-Z0-9-]{20,}",
    ),
    shape(
        "aws-key-id",
        &["akia", "asia", "abia", "acca", "aroa", "aida"],
        r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}",
    ),
    shape(
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})",
    ),
    shape(
        "gitlab-token",
        &[
            "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "glsoat-",
            "gloas-", "glffct-",
        ],
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|oas|ffct)-[A-Za-z0-9_.\-]{16,}",
    ),
    shape(
        "slack-token",
        &["xox", "xapp-", "hooks.slack.com"],
        r"(?:xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9\-]{8,}|xapp-[A-Za-z0-9\-]{10,}|hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9/]{20,}))",
    ),
    shape(
        "google-key",
        &["aiza", "ya29.", "gocspx-", "1//0"],
        r"(?:AIza[0-9A-Za-z_\-]{30,}|ya29\.[0-9A-Za-z_\-.]{20,}|GOCSPX-[0-9A-Za-z_\-]{20,}|1//0[0-9A-Za-z_\-]{30,})",
    ),
    shape(
        "stripe-key",
        &["_live_", "_test_", "_org_", "whsec_"],
        r"(?:[sr]k_(?:live|test|org)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,})",
    ),
    shape("cofferdam-token", &["cft_", "cfa_"], r"cf[at]_[0-9a-f\-]{36}_[A-Za-z0-9+/]{20,}"),
    Shape {
        name: "api-key",
        anchors: &["sk-"],
        pattern: r"(?:^|[^A-Za-z0-9])(?P<s>sk-[A-Za-z0-9_\-]{16,})",
        accepts: has_digit,
    },
    Shape {
        name: "access-token",
        anchors: &[
            "npm_",
            "dckr_",
            "hf_",
            "dop_v1_",
            "doo_v1_",
            "dor_v1_",
            "shpat_",
            "shpca_",
            "shppa_",
            "shpss_",
            "hvs.",
            "hvb.",
            "hvr.",
            "dapi",
            "atatt",
            "atctt",
            "nrak-",
            "sq0",
            "lin_api_",
            "ntn_",
            "secret_",
            "dp.",
            "pul-",
            "glsa_",
            "glc_",
            "pscale_",
            "sbp_",
            "pplx-",
            "gsk_",
            "xai-",
            "r8_",
            "rubygems_",
            "sntry",
            "phc_",
            "phx_",
            "fo1_",
            "fm2_",
            "key-",
            "pnu_",
            "ops_",
            "tskey-",
            "cio",
            "api_org_",
            "figd_",
            "vercel_",
            "nvapi-",
            "sha256~",
            "eaac",
            "rk_",
            "sgp_",
            "tfp_",
            "pypi-age",
            "oy2",
            "sq",
            "shippo_",
            "xkeysib-",
            "rdme_",
            "access-",
            "packagist_",
            "api-",
            "napi_",
            "lsv2_",
            "pat",
            "sat.",
            "dt0c01.",
            "dnkey-",
            "bkua_",
            "v1.0-",
            "clojars_",
            "csk-",
            "a3-",
            "sk_",
            "live_",
            "test_",
            "fw_",
            "rnd_",
            "nfp_",
            "tvly-",
            "pcsk_",
            "abskq",
        ],
        pattern: r"(?x)(?:^|[^A-Za-z0-9_]) (?P<s> (?:
              npm_ | dckr_(?:pat|oat)_ | hf_ | do[opr]_v1_ | shp(?:at|ca|pa|ss)_ | hv[sbr]\. | dapi | AT[AC]TT3 | NRAK- | sq0[a-z]{3}-
            | lin_api_ | ntn_ | secret_ | dp\.[a-z]{2,6}\. | pul- | glsa_ | glc_ | pscale_[a-z]{2,6}_ | sbp_ | pplx- | gsk_ | xai- | r8_
            | rubygems_ | sntry[a-z]_ | ph[cx]_ | fo1_ | fm2_ | key- | pnu_ | ops_ | tskey-[a-z]{2,8}- | cio | api_org_ | figd_ | vercel_
            | nvapi- | sha256~ | EAAC | sgp_ | tfp_ | pypi-AgE | oy2 | sq[uap]_ | shippo_(?:live|test)_ | xkeysib- | rdme_
            | access-(?:production|development|sandbox)- | packagist_[a-z]{3}_ | API- | napi_ | lsv2_(?:pt|sk)_ | [ps]at\.
            | pat[A-Za-z0-9]{14}\. | dt0c01\. | dnkey- | bkua_ | v1\.0- | CLOJARS_ | csk- | A3-[A-Z0-9]{6}- | sk_ | fw_ | rnd_
            | nfp_ | tvly- | pcsk_ | ABSKQ
            ) [A-Za-z0-9_\-+/=.]{20,} )",
        accepts: is_mixed,
    },
    shape("access-token", &["live_", "test_"], r"\b(?P<s>(?:live|test)_[0-9a-f]{30,})"),
    shape("gitlab-session", &["_gitlab_session="], r"_gitlab_session=(?P<s>[0-9a-f]{16,})"),
    shape("mailchimp-key", &["-us"], r"\b[0-9a-f]{32}-us[0-9]{1,2}\b"),
    shape("asana-token", &["0/", "1/"], r"\b(?P<s>[01]/(?:[0-9]{10,20}:)?[0-9a-f]{32})\b"),
    shape("azure-secret", &["q~"], r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.\-]{30,}"),
    shape("azure-token", &["azdo"], r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}"),
    shape("sas-signature", &["sig="], r"(?:^|[^A-Za-z0-9])sig=(?P<s>[A-Za-z0-9%+/=_\-]{20,})"),
    shape(
        "webhook",
        &["webhook.office.com"],
        r"webhook\.office\.com/[^\s/]{1,128}/[^\s/]{1,512}/IncomingWebhook/(?P<s>[0-9a-f]{20,}(?:/[0-9a-f\-]{36})?)",
    ),
    shape("sendgrid-key", &["sg."], r"SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}"),
    Shape {
        name: "twilio-key",
        anchors: &["sk"],
        pattern: r"(?:^|[^A-Za-z0-9])(?P<s>SK[0-9a-f]{32})",
        accepts: has_digit,
    },
    shape("telegram-token", &[":aa"], r"[0-9]{8,10}:AA[A-Za-z0-9_\-]{32,}"),
    shape("discord-token", &["."], r"[MNO][A-Za-z0-9_\-]{23,27}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,}"),
    shape("terraform-token", &[".atlasv1."], r"[A-Za-z0-9]{10,}\.atlasv1\.[A-Za-z0-9_\-]{20,}"),
    shape("jwt", &["eyj"], r"eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*){1,4}"),
    Shape {
        name: "bearer-token",
        anchors: &["bearer"],
        pattern: r"(?i)\bbearer[ \t:]{1,4}(?P<s>[A-Za-z0-9._~+/\-]{8,}=*)",
        accepts: is_mixed,
    },
    Shape {
        name: "basic-auth",
        anchors: &["basic"],
        pattern: r"(?i)\bbasic[ \t]{1,4}(?P<s>[A-Za-z0-9+/]{10,}={0,2})",
        accepts: |text| text.ends_with('=') || is_mixed(text),
    },
    Shape {
        name: "url-password",
        anchors: &["://"],
        pattern: r#"[A-Za-z][A-Za-z0-9+.\-]{0,20}://[^\s/:@"'<>]{0,1024}:(?P<s>[^\s/"'<>]+)@"#,
        accepts: |text| !text.starts_with("${") && !text.starts_with('<'),
    },
    Shape {
        name: "url-token",
        anchors: &["://"],
        pattern: r"https?://(?P<s>[A-Za-z0-9_\-]{16,})@",
        accepts: has_digit,
    },
    shape("netrc-password", &["login"], r"\blogin\s{1,4}\S{1,1024}\s{1,4}password\s{1,4}(?P<s>\S+)"),
    shape(
        "command-password",
        &["curl", "wget"],
        r#"\b(?:curl|wget)\b[^\n|;&]{0,2048}?\s(?:-u|--user|--proxy-user)[ =]?["']?[^\s:"']{0,1024}:(?P<s>[^\s"']+)"#,
    ),
    Shape {
        name: "command-password",
        anchors: &["redis-cli", "openssl", "mosquitto_", "ldap"],
        pattern: r#"\b(?:redis-cli|openssl|mosquitto_[a-z]{1,8}|ldap[a-z]{1,12})\b[^\n|;&]{0,2048}?\s(?:-a|-k|-w|-P|--pw|--pass)[ =]["']?(?P<s>[^\s"']+)"#,
        accepts: is_literal,
    },
    Shape {
        name: "command-password",
        anchors: &["docker", "podman"],
        pattern: r#"\b(?:docker|podman)\s{1,4}login\b[^\n|;&]{0,2048}?\s(?:-p|--password)[ =]["']?(?P<s>[^\s"']+)"#,
        accepts: is_literal,
    },
    Shape {
        name: "command-password",
        anchors: &["htpasswd"],
        pattern: r#"\bhtpasswd\s{1,4}(?:-[A-Za-z]{1,8}\s{1,4}){0,4}-[A-Za-z]{0,8}b[A-Za-z]{0,8}\s{1,4}(?:-[A-Za-z]{1,8}\s{1,4}){0,4}\S{1,1024}\s{1,4}\S{1,1024}\s{1,4}["']?(?P<s>[^\s"']+)"#,
        accepts: is_literal,
    },
    shape("command-password", &["sshpass"], r#"\bsshpass\s{1,4}-p\s{0,4}["']?(?P<s>[^\s"']+)"#),
    shape(
        "command-password",
        &["mysql", "mariadb"],
        r#"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;&]{0,2048}?\s-p["']?(?P<s>[^\s"']+)"#,
    ),
];

/// Returns true if the text is not a shell variable.
fn is_literal(text: &str) -> bool {
    !text.starts_with('$')
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}

/// Returns true if the text is not a plain word or name.
///
/// Such a text has digits, or capitals among lower-case letters, or is longer than words are.
fn is_mixed(text: &str) -> bool {
    let inner_capital =
        text.as_bytes().windows(2).filter(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase());
    has_digit(text) || inner_capital.count() >= 2 || text.len() >= 40 && !text.contains(['-', '_', '.', '/'])
}

#[derive(Debug, Clone)]
pub(super) struct Shapes {
    anchors: AhoCorasick,
    /// Index of the shape of each anchor.
    owners: Arc<[usize]>,
    /// Patterns, which are compiled when the first text contains their anchor. Most never are, and all together need megabytes.
    patterns: Arc<[OnceLock<Regex>]>,
}

/// Creates the builder of a pattern that matches bytes.
///
/// Unicode classes multiply the states of a bounded repetition, and the tokens are ASCII. A repetition of arbitrary characters allows for
/// four bytes each.
fn builder(shape: &Shape) -> RegexBuilder {
    let mut builder = RegexBuilder::new(shape.pattern);
    builder.unicode(false);
    builder
}

#[expect(clippy::expect_used, reason = "the patterns are constants that a test compiles")]
fn compile(shape: &Shape) -> Regex {
    builder(shape).build().expect("a valid pattern")
}

impl Shapes {
    #[expect(clippy::expect_used, reason = "the anchors are constants that every test compiles")]
    pub(super) fn new() -> Self {
        let anchors = SHAPES.iter().flat_map(|shape| shape.anchors);
        let owners =
            SHAPES.iter().enumerate().flat_map(|(at, shape)| shape.anchors.iter().map(move |_| at)).collect();
        let patterns = SHAPES.iter().map(|_| OnceLock::new()).collect();
        let anchors = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(anchors)
            .expect("few and short literals");
        Self { anchors, owners, patterns }
    }

    /// Returns every token of a known shape in `text`.
    pub(super) fn find(&self, text: &str) -> Vec<Finding> {
        let mut possible = [false; SHAPES.len()];
        for found in self.anchors.find_overlapping_iter(text) {
            possible[self.owners[found.pattern().as_usize()]] = true;
        }
        let mut findings = Vec::new();
        for (at, shape) in SHAPES.iter().enumerate().filter(|(at, _)| possible[*at]) {
            let pattern = self.patterns[at].get_or_init(|| compile(shape));
            findings.extend(matches(pattern, shape, text).map(|at| Finding { at, name: shape.name }));
        }
        findings
    }
}

fn matches<'a>(
    pattern: &'a Regex,
    shape: &'a Shape,
    text: &'a str,
) -> impl Iterator<Item = Range<usize>> + 'a {
    pattern
        .captures_iter(text.as_bytes())
        .filter_map(|captures| captures.name("s").or_else(|| captures.get(0)).map(|found| found.range()))
        // A class of bytes can end within a character.
        .map(|at| whole_characters(text, at))
        .filter(|at| (shape.accepts)(&text[at.clone()]))
}

/// Returns the smallest range of whole characters that contains `at`.
fn whole_characters(text: &str, at: Range<usize>) -> Range<usize> {
    let start = floor(text, at.start);
    let end = (at.end..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    start..end
}

#[cfg(test)]
mod tests {
    use super::{SHAPES, Shapes, builder};

    #[test]
    fn every_pattern_compiles_small() {
        for shape in SHAPES {
            let small = builder(shape).size_limit(512 << 10).build();
            assert!(small.is_ok(), "{}: {}", shape.name, shape.pattern);
        }
    }

    #[test]
    fn secrets_are_found_among_other_alphabets() {
        let shapes = Shapes::new();
        for (text, secret) in [
            ("curl «é» 日本語 -u 名前:geheim-日本 x", "geheim-日本"),
            ("https://пользователь:пароль@example.org/", "пароль"),
            ("日sk-abcdefghij1234567890日", "sk-abcdefghij1234567890"),
            ("\u{a0}bearer abcdefgh123", "abcdefgh123"),
        ] {
            let found = shapes.find(text);
            assert!(found.iter().any(|found| &text[found.at.clone()] == secret), "{text}: {found:?}");
        }
    }
}
