//! Values of a Compose file: text without variables, lists of words, ports, sizes and times.

use std::collections::BTreeMap;
use std::time::Duration;

use document::{At, parse_duration};

/// Most ports of a companion.
const MAX_PORTS: usize = 16;

const NO_VARIABLES: &str = "variables are not replaced; write the value, or `$$` for a dollar sign";

/// Returns text that is not blank, with `$$` as a dollar sign. A variable is a problem.
pub(crate) fn text(at: &At<'_>) -> Option<String> {
    literal(at, &at.argument()?)
}

/// Returns the value of a variable of the environment: text that may be blank, or a number.
fn variable(at: &At<'_>) -> Option<String> {
    literal(at, &at.value()?)
}

fn literal(at: &At<'_>, text: &str) -> Option<String> {
    let mut literal = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter == '$' && rest.next() != Some('$') {
            at.problem(NO_VARIABLES);
            return None;
        }
        literal.push(letter);
    }
    Some(literal)
}

/// Returns the words of a command: a list, or text that is split as a shell splits it.
pub(crate) fn words(at: &At<'_>) -> Option<Vec<String>> {
    let words = if at.is_text() {
        let text = text(at)?;
        let words = split(&text);
        if words.is_none() {
            at.problem("has a quote that is not closed, or no word");
        }
        words?
    } else {
        // An empty argument is an argument.
        at.items().iter().map(variable).collect::<Option<Vec<_>>>()?
    };
    if words.first().is_none_or(String::is_empty) {
        at.problem("names no program or argument; leave the key out for the command of the image");
        return None;
    }
    Some(words)
}

/// Splits a command into its words as a shell does. Returns nothing if a quote is not closed, or there is no word.
pub fn split(command: &str) -> Option<Vec<String>> {
    shlex::split(command).filter(|words| words.first().is_some_and(|word| !word.is_empty()))
}

/// Returns variables: a mapping, or a list of `NAME=VALUE`.
pub(crate) fn environment(at: &At<'_>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut add = |at: &At<'_>, name: &str, value: Option<String>| {
        if name.is_empty() || name.contains('=') {
            at.problem("is no NAME=VALUE");
        } else if let Some(value) = value
            && variables.insert(name.to_owned(), value).is_some()
        {
            at.problem("given more than once");
        }
    };
    if at.is_list() {
        for item in at.items() {
            match text(&item).as_deref().map(|pair| pair.split_once('=')) {
                Some(Some((name, value))) => add(&item, name, Some(value.to_owned())),
                Some(None) => item.problem(NO_VALUE),
                None => {}
            }
        }
    } else {
        for (name, value) in at.entries() {
            if value.is_absent() {
                value.problem(NO_VALUE);
            } else {
                add(&value, name, variable(&value));
            }
        }
    }
    variables
}

const NO_VALUE: &str =
    "has no value, and the variables of the caller are not read; write `\"\"` for an empty value";

/// Returns the container ports of `expose` and `ports`, each once. A port of the host is a problem.
pub(crate) fn ports(lists: &[Option<&At<'_>>]) -> Vec<u16> {
    let mut ports = Vec::new();
    for list in lists.iter().copied().flatten() {
        for item in list.items() {
            let port = if item.is_text() || item.is_number() { port(&item) } else { long_port(&item) };
            ports.extend(port.filter(|port| !ports.contains(port)));
        }
        if ports.len() > MAX_PORTS {
            list.problem(format!("must have at most {MAX_PORTS} ports"));
        }
    }
    ports
}

fn port(at: &At<'_>) -> Option<u16> {
    let written = text(at)?;
    let number = written.strip_suffix("/tcp").unwrap_or(&written);
    let port = number.parse().ok().filter(|port| *port > 0);
    if port.is_some() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return port;
    }
    match number.rsplit_once(':') {
        Some((_, port)) => published(at, port),
        None if number.contains('-') => at.problem("ranges are not read; list each port"),
        None => at.problem("must be a TCP port from 1 to 65535"),
    }
    None
}

fn published(at: &At<'_>, port: &str) {
    let port = port.chars().take(11);
    let port: String = port.filter(|letter| letter.is_ascii_digit() || *letter == '-').collect();
    at.problem_hint("no port of the host is published", Some(format!("write `{port}` under `expose`")));
}

/// Returns the port of an item of `ports` that is a mapping.
fn long_port(at: &At<'_>) -> Option<u16> {
    let fields = at.fields(&["target", "published", "protocol", "host_ip", "mode", "name", "app_protocol"]);
    for key in ["published", "host_ip", "mode"] {
        if let Some(at) = fields.get(key) {
            at.problem("no port of the host is published; leave the key out");
        }
    }
    if let Some(protocol) = fields.get("protocol") {
        protocol.one_of(&[("tcp", ())]);
    }
    fields.required("target").and_then(port)
}

/// Returns a size in MiB, rounded up: a number of bytes, or with a unit as in `512m` and `0.5gb`. Units are powers of 1024.
pub(crate) fn memory(at: &At<'_>) -> Option<u32> {
    let written = literal(at, &at.decimal()?)?;
    let mib = bytes(&written.to_ascii_lowercase()).map(|bytes| bytes.div_ceil(1 << 20));
    let mib = mib.and_then(|mib| u32::try_from(mib).ok()).filter(|mib| (1..=1 << 20).contains(mib));
    if mib.is_none() {
        at.problem("must be a size from 1m to 1024g, such as 512m");
    }
    mib
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let power = match unit.strip_suffix('b').unwrap_or(unit) {
        "" => 0,
        "k" | "ki" => 10,
        "m" | "mi" => 20,
        "g" | "gi" => 30,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if fraction.is_empty() || fraction.len() > 3 || fraction.contains('.') {
        return None;
    }
    let thousandths = whole.parse::<u64>().ok()?.checked_mul(1000)?;
    let thousandths = thousandths.checked_add(format!("{fraction:0<3}").parse().ok()?)?;
    Some(thousandths.checked_mul(1 << power)? / 1000)
}

/// Returns a time, such as `30s` or `1m30s`.
pub(crate) fn time(at: &At<'_>) -> Option<Duration> {
    let time = parse_duration(&text(at)?).filter(|time| *time <= Duration::from_secs(86_400));
    if time.is_none() {
        at.problem("must be a time up to 24h, such as 500ms, 30s or 1m30s");
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(text: &str, value: impl FnOnce(&At<'_>) -> T) -> Result<T, String> {
        let read = document::read("f", &format!("v: {text}"), |top| value(&top.fields(&["v"]).at("v")));
        read.map_err(|problems| problems[0].to_string())
    }

    #[test]
    fn dollar_signs_are_doubled_and_variables_refused() {
        assert_eq!(read("a$$b$$", text), Ok(Some("a$b$".to_owned())));
        for variable in ["${HOME}", "$HOME", "a$", "$$$", "${A:-b}"] {
            let told = read(variable, text).unwrap_err();
            assert!(told.contains("variables are not replaced"), "{variable}: {told}");
        }
    }

    #[test]
    fn commands_are_lists_or_text_that_is_split() {
        let of = |text: &str| read(text, words);
        let words =
            |words: &[&str]| Ok(Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()));
        assert_eq!(of("sh -c 'a \"b\"  c'"), words(&["sh", "-c", "a \"b\"  c"]));
        assert_eq!(of("[sleep, 5, \"\"]"), words(&["sleep", "5", ""]));
        for bad in ["'a \"b'", "[]", "[\"\"]", "\" \"", "{ a: b }", "5"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_ports_of_the_container_are_accepted() {
        let of = |text: &str| read(text, |at| ports(&[Some(at), None]));
        assert_eq!(of("[5432, \"6379/tcp\", \"5432\"]"), Ok(vec![5432, 6379]));
        assert_eq!(of("[{ target: 80, protocol: tcp, name: web }]"), Ok(vec![80]));
        for (bad, told) in [
            ("[\"5432:5432\"]", "write `5432` under `expose`"),
            ("[\"127.0.0.1:80:8080\"]", "write `8080` under `expose`"),
            ("[{ target: 80, published: 80 }]", "no port of the host"),
            ("[\"3000-3005\"]", "list each port"),
            ("[\"53/udp\"]", "must be a TCP port"),
            ("[0]", "must be a TCP port"),
            ("[70000]", "must be a TCP port"),
            ("[\"+80\"]", "must be a TCP port"),
            ("[{ published: 80 }]", "no port of the host"),
            ("[{ protocol: tcp }]", "`target` is missing"),
            ("5432", "expected a list"),
            ("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "at most 16 ports"),
        ] {
            assert!(of(bad).unwrap_err().contains(told), "{bad}: {:?}", of(bad));
        }
    }

    #[test]
    fn sizes_and_times_are_those_of_compose() {
        for (text, mib) in [
            ("512m", 512),
            ("512MB", 512),
            ("1g", 1024),
            ("1gb", 1024),
            ("1048577", 2),
            ("64MiB", 64),
            ("0.5gb", 512),
            ("1.25G", 1280),
            ("1024k", 1),
        ] {
            assert_eq!(read(text, memory), Ok(Some(mib)), "{text}");
        }
        for bad in ["0", "1.5.5g", "1.g", ".5g", "-1", "2000t", "much"] {
            assert!(read(bad, memory).is_err(), "{bad}");
        }
        assert_eq!(read("1m30s", time), Ok(Some(Duration::from_secs(90))));
        for bad in ["30", "25h", "1.5s", "soon"] {
            assert!(read(bad, time).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_have_names_and_values() {
        let of = |text: &str| read(text, environment);
        let pairs = |pairs: &[(&str, &str)]| {
            Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(of("{ A: 1.5, B: \"\", C: \" \" }"), pairs(&[("A", "1.5"), ("B", ""), ("C", " ")]));
        assert_eq!(of("[A=1, B=]"), pairs(&[("A", "1"), ("B", "")]));
        for bad in [
            "{ A: }",
            "[A]",
            "[=b]",
            "{ \"\": b }",
            "{ A: true }",
            "{ A: [b] }",
            "[A=1, A=2]",
            "{ A: $B }",
            "text",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
