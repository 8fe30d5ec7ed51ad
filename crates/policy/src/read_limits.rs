//! Reads `rate_limits` and `concurrency`. Missing values have the limits of `strict`.

use std::collections::BTreeMap;

use operations::{Operation, is_mcp_server};

use crate::quota::{Limit, Quota, RateLimits, STRICT_PRINCIPAL, STRICT_RUN, Span, strict};
use crate::{Caps, caps::STRICT_CAPS};
use document::{At, Fields, nearest};

/// Most calls in a window. A policy without a limit says `unlimited`.
const MOST: u64 = 100_000_000;
/// Most calls of one run that its workers run at the same time, and most calls of a run that wait.
const MOST_OF_RUN: u32 = 64;
const MOST_UNDER_WAY: u32 = 256;
const MOST_OF_PRINCIPAL: u32 = 65_536;
const LONGEST_WAIT_S: u64 = 300;

pub(super) fn rate_limits(at: Option<&At<'_>>) -> RateLimits {
    let fields = at.map(|at| at.fields(&["operations", "run", "principal"]));
    let quota_or = |key: &str, otherwise: Quota| {
        fields.as_ref().and_then(|fields| fields.get(key)).and_then(quota).unwrap_or(otherwise)
    };
    RateLimits {
        operations: fields
            .as_ref()
            .and_then(|fields| fields.get("operations"))
            .map_or_else(strict, operations),
        run: quota_or("run", STRICT_RUN),
        principal: quota_or("principal", STRICT_PRINCIPAL),
    }
}

pub(super) fn caps(at: Option<&At<'_>>) -> Caps {
    let Some(at) = at else { return STRICT_CAPS };
    let fields = at.fields(&["run", "principal", "waiting", "wait_s"]);
    let number = |key: &str, least: u32, most: u32, otherwise: u32| {
        let number = fields.number_or(key, least.into()..=most.into(), otherwise.into());
        u32::try_from(number).unwrap_or(otherwise)
    };
    let caps = Caps {
        run: number("run", 1, MOST_OF_RUN, STRICT_CAPS.run),
        principal: number("principal", 1, MOST_OF_PRINCIPAL, STRICT_CAPS.principal),
        waiting: number("waiting", 0, MOST_UNDER_WAY, STRICT_CAPS.waiting),
        wait_s: fields.number_or("wait_s", 0..=LONGEST_WAIT_S, STRICT_CAPS.wait_s),
    };
    if caps.run > caps.principal {
        let Caps { run, principal, .. } = caps;
        fields.get("run").or(fields.get("principal")).unwrap_or(at).problem_hint(
            format!(
                "{run} calls of a run are more than {principal} of a principal, which would never be reached"
            ),
            Some(format!("set `run` to at most {principal}, or raise `principal`")),
        );
    }
    caps
}

/// Reads the limits of operations. `default` applies to all that are not named; without it, the seed's limits do.
fn operations(at: &At<'_>) -> BTreeMap<String, Quota> {
    let known: Vec<&str> = [RateLimits::DEFAULT].into_iter().chain(Operation::NAMES).collect();
    let entries = at.entries();
    let has_default = entries.iter().any(|(name, _)| *name == RateLimits::DEFAULT);
    let mut quotas = if has_default { BTreeMap::new() } else { strict() };
    for (name, value) in entries {
        // Tools of an upstream server count together.
        if known.contains(&name) || name.strip_prefix("mcp.").is_some_and(is_mcp_server) {
            quotas.extend(quota(&value).map(|quota| (name.to_owned(), quota)));
        } else if name.starts_with("mcp.") {
            let way = "write `mcp.SERVER`: calls of all tools of a server count together".to_owned();
            value.problem_hint("this names no MCP server", Some(way));
        } else {
            value.problem_hint("unknown operation", Some(nearest(name, &known)));
        }
    }
    quotas
}

fn quota(at: &At<'_>) -> Option<Quota> {
    let fields = at.fields(&Span::ALL.map(Span::as_str));
    let [minute, hour, day] = Span::ALL.map(|span| limit(&fields, span));
    let quota = Quota { minute: minute?, hour: hour?, day: day? };
    for [shorter, longer] in [[Span::Minute, Span::Hour], [Span::Hour, Span::Day]] {
        if let (Some(few), Some(many)) = (quota.of(longer).calls(), quota.of(shorter).calls())
            && few < many
        {
            let (shorter, longer) = (shorter.as_str(), longer.as_str());
            fields.get(longer).unwrap_or(at).problem_hint(
                format!("{few} calls per {longer} are less than {many} per {shorter}, which would never be reached"),
                Some(format!("set `{longer}` to at least {many}, or lower `{shorter}`")),
            );
        }
    }
    Some(quota)
}

fn limit(fields: &Fields<'_>, span: Span) -> Option<Limit> {
    let at = fields.required(span.as_str())?;
    if !at.is_number() {
        return at.one_of(&[("unlimited", Limit::Unlimited)]);
    }
    let calls = at.number(0..=MOST)?;
    if calls == 0 {
        at.problem_hint(
            "a limit of 0 would refuse every call",
            Some("set the operation to `deny`, or write `unlimited` for no limit".to_owned()),
        );
        return None;
    }
    u32::try_from(calls).ok().map(Limit::Calls)
}

#[cfg(test)]
mod tests {
    use crate::{Caps, Policy, Problems, Span, caps::STRICT_CAPS};

    const ROLES: &str = "roles: {r: {allow: [read]}}\n";

    fn problems(yaml: &str) -> Vec<String> {
        match Policy::from_files([("p.yaml", yaml)]) {
            Ok(_) => Vec::new(),
            Err(Problems(problems)) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn rate_limits_are_read_and_bad_ones_are_named() {
        let with = |limits: &str| {
            format!("{ROLES}profiles:\n  p:\n    operations: {{read: allow}}\n    rate_limits:\n{limits}")
        };
        let sound = with(
            "      operations:\n        read: {minute: 3, hour: 3, day: unlimited}\n      run: {minute: 1, hour: 2, day: 3}\n",
        );
        let policy = Policy::from_files([("p.yaml", &sound)]).unwrap();
        let limits = &policy.profile("p").unwrap().rate_limits;
        let calls = |name| {
            [Span::Minute, Span::Hour, Span::Day].map(|span| limits.operation(name).1.of(span).calls())
        };
        assert_eq!(calls("read"), [Some(3), Some(3), None]);
        assert_eq!(
            calls("write"),
            [Some(10), Some(100), Some(500)],
            "those of the seed, where there is no default"
        );
        let shown = policy.to_yaml().unwrap();
        assert_eq!(Policy::from_files([("p.yaml", shown)]).unwrap().digest(), policy.digest());

        let all = "{minute: 20, hour: 30, day: 40}";
        for (limits, expected) in [
            (
                "      run: {minute: 0, hour: 5, day: 5}\n".to_owned(),
                "p.yaml:6: profiles.p.rate_limits.run.minute: a limit of 0 would refuse every call \
                 (set the operation to `deny`, or write `unlimited` for no limit)",
            ),
            (
                "      run: {minute: 20, hour: 30, day: 10}\n".to_owned(),
                "p.yaml:6: profiles.p.rate_limits.run.day: 10 calls per day are less than 30 per hour, which would never \
                 be reached (set `day` to at least 30, or lower `hour`)",
            ),
            (
                "      run: {minute: unlimited, hour: 30, day: 400000000}\n".to_owned(),
                "p.yaml:6: profiles.p.rate_limits.run.day: must be a whole number from 0 to 100000000",
            ),
            (
                "      run: {minute: 1, hour: 30}\n".to_owned(),
                "p.yaml:6: profiles.p.rate_limits.run: `day` is missing",
            ),
            (
                format!("      operations: {{raed: {all}}}\n"),
                "p.yaml:6: profiles.p.rate_limits.operations.raed: unknown operation (did you mean `read`?)",
            ),
            (
                "      run: {minute: umlimited, hour: 30, day: 40}\n".to_owned(),
                "p.yaml:6: profiles.p.rate_limits.run.minute: unknown value `umlimited` (did you mean `unlimited`?)",
            ),
            (
                format!("      runs: {all}\n"),
                "p.yaml:6: profiles.p.rate_limits.runs: unknown key (did you mean `run`?)",
            ),
        ] {
            assert_eq!(problems(&with(&limits)), [expected]);
        }
    }

    #[test]
    fn caps_are_read_and_bad_ones_are_named() {
        let with = |caps: &str| {
            format!("{ROLES}profiles:\n  p:\n    operations: {{read: allow}}\n    concurrency: {caps}\n")
        };
        let policy =
            Policy::from_files([("p.yaml", with("{run: 3, principal: 5, waiting: 0, wait_s: 0}"))]).unwrap();
        let caps = policy.profile("p").unwrap().concurrency;
        assert_eq!(caps, Caps { run: 3, principal: 5, waiting: 0, wait_s: 0 });
        let shown = policy.to_yaml().unwrap();
        assert_eq!(Policy::from_files([("p.yaml", shown)]).unwrap().digest(), policy.digest());
        let silent = Policy::from_files([("p.yaml", with("{}"))]).unwrap();
        assert_eq!(silent.profile("p").unwrap().concurrency, STRICT_CAPS);

        for (caps, expected) in [
            ("{run: 0}", "p.yaml:5: profiles.p.concurrency.run: must be a whole number from 1 to 64"),
            ("{run: 65}", "p.yaml:5: profiles.p.concurrency.run: must be a whole number from 1 to 64"),
            (
                "{waiting: 257}",
                "p.yaml:5: profiles.p.concurrency.waiting: must be a whole number from 0 to 256",
            ),
            (
                "{wait_s: 301}",
                "p.yaml:5: profiles.p.concurrency.wait_s: must be a whole number from 0 to 300",
            ),
            ("{runs: 3}", "p.yaml:5: profiles.p.concurrency.runs: unknown key (did you mean `run`?)"),
            (
                "{run: 9, principal: 8}",
                "p.yaml:5: profiles.p.concurrency.run: 9 calls of a run are more than 8 of a principal, which would \
                 never be reached (set `run` to at most 8, or raise `principal`)",
            ),
        ] {
            assert_eq!(problems(&with(caps)), [expected]);
        }
    }
}
