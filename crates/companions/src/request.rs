//! Companions as a client requests them.

use std::collections::{BTreeMap, BTreeSet};

use egress_rules::Narrowed;
use operations::{Environment, Reason};
use policy::{Check, Companion, CompanionRules, NoCompanions, Readiness};
use refusal::Refusal;
use wire::v1;
use wire::v1::readiness::Check as WireCheck;

const FIELD: &str = "companions";

/// A companion that a run is to have, with the values of its secret variables.
#[derive(Clone)]
pub struct Requested {
    pub companion: Companion,
    /// Rules for its connections.
    pub rules: Narrowed,
    /// Variables with placeholders of the secrets that these rules inject. The caller adds them.
    pub placeholders: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
}

/// Returns the companions of a run, in groups of which each can start when all before it are ready.
///
/// `egress` has the rules for the run's connections.
pub fn requested<'r>(
    asked: Vec<v1::Companion>,
    rules: &CompanionRules,
    egress: impl IntoIterator<Item = &'r egress_rules::Rules>,
) -> Result<Vec<Vec<Requested>>, Refusal> {
    if asked.len() > CompanionRules::MOST {
        return Err(Refusal::invalid(FIELD, format!("has more than {} entries", CompanionRules::MOST)));
    }
    let mut secrets = BTreeMap::new();
    let mut companions = Vec::with_capacity(asked.len());
    for asked in asked {
        let egress = asked.egress_json.clone();
        let (mut companion, values) = one(asked)?;
        companion.check().map_err(refused)?;
        if !egress.is_empty() {
            let own = rules.narrowed(&companion.image).requested(&egress);
            let own = own
                .map_err(|why| Refusal::invalid(FIELD, format!("{}: egress_json: {why}", companion.name)))?;
            companion.egress = Some(own);
        }
        let together = companion.env.iter().chain(&values);
        let together: BTreeMap<_, _> = together.map(|(name, value)| (name.clone(), value.clone())).collect();
        if together.len() < companion.env.len() + values.len() {
            let why = format!("{}: a variable is in env and in secret_env", companion.name);
            return Err(Refusal::invalid(FIELD, why));
        }
        if let Err(malformed) = Environment::parse("env and secret_env", together) {
            return Err(Refusal::invalid(FIELD, format!("{}: {malformed}", companion.name)));
        }
        secrets.insert(companion.name.clone(), values);
        companions.push(companion);
    }
    let groups = rules.of_run(companions, egress).map_err(refused)?;
    let with_secrets = |companion: Companion| {
        let secrets = secrets.remove(&companion.name).unwrap_or_default();
        let of_image = rules.narrowed(&companion.image);
        let rules = companion.egress.iter().cloned().fold(of_image, Narrowed::under);
        Requested { companion, rules, placeholders: BTreeMap::new(), secrets }
    };
    let mut with_secrets = with_secrets;
    Ok(groups.into_iter().map(|group| group.into_iter().map(&mut with_secrets).collect()).collect())
}

fn refused(why: NoCompanions) -> Refusal {
    match why {
        NoCompanions::Invalid(why) => Refusal::invalid(FIELD, why),
        NoCompanions::Image { .. } => Refusal::new(Reason::ImageNotAllowed, format!("{FIELD}: {why}")),
    }
}

fn one(asked: v1::Companion) -> Result<(Companion, BTreeMap<String, String>), Refusal> {
    let v1::Companion {
        name,
        image,
        command,
        env,
        secret_env,
        ready,
        memory_mib,
        ports,
        depends_on,
        egress_json: _,
    } = asked;
    let port = |port: u32| {
        let bad = || Refusal::invalid(FIELD, "a port is a number from 1 to 65535");
        u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(bad)
    };
    let ready = match ready {
        None => None,
        Some(v1::Readiness { check, timeout_seconds, interval_milliseconds }) => {
            let check = match check {
                Some(WireCheck::Tcp(tcp)) => Check::Tcp(port(tcp)?),
                Some(WireCheck::Command(command)) => Check::Command(command.args),
                None => return Err(Refusal::invalid(FIELD, "a check (`ready`) needs a port or a command")),
            };
            let or = |asked: u32, usual: u64| if asked == 0 { usual } else { asked.into() };
            Some(Readiness {
                check,
                timeout_seconds: or(timeout_seconds, Readiness::TIMEOUT.1),
                interval_milliseconds: or(interval_milliseconds, Readiness::INTERVAL.2),
            })
        }
    };
    let companion = Companion {
        name,
        image,
        command,
        env: env.into_iter().collect(),
        ready,
        memory_mib: memory_mib.into(),
        ports: ports.into_iter().map(port).collect::<Result<BTreeSet<u16>, _>>()?,
        depends_on: depends_on.into_iter().collect(),
        egress: None,
    };
    Ok((companion, secret_env.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> CompanionRules {
        CompanionRules {
            images: vec!["db:*".to_owned()],
            max: 2,
            memory_mib: 512,
            ..CompanionRules::default()
        }
    }

    fn db() -> v1::Companion {
        v1::Companion {
            name: "db".to_owned(),
            image: "db:15".to_owned(),
            ready: Some(v1::Readiness { check: Some(WireCheck::Tcp(5432)), ..v1::Readiness::default() }),
            secret_env: [("KEY".to_owned(), "hunter2".to_owned())].into_iter().collect(),
            ..v1::Companion::default()
        }
    }

    fn refusal(asked: Vec<v1::Companion>) -> Refusal {
        let Err(refusal) = requested(asked, &rules(), []) else { panic!("it was accepted") };
        refusal
    }

    #[test]
    fn a_request_gets_the_defaults_of_what_it_leaves_out() {
        let groups = requested(vec![db()], &rules(), []).unwrap();
        let [group] = &groups[..] else { panic!("not one group") };
        let ready = group[0].companion.ready.as_ref().unwrap();
        assert_eq!((ready.timeout_seconds, ready.interval_milliseconds), (60, 200));
        assert_eq!((group[0].companion.memory_mib, group[0].secrets["KEY"].as_str()), (512, "hunter2"));
        assert!(requested(Vec::new(), &rules(), []).unwrap().is_empty());
    }

    #[test]
    fn requests_beyond_bounds_are_refused_before_anything_is_made() {
        let with = |change: &dyn Fn(&mut v1::Companion)| {
            let mut asked = db();
            change(&mut asked);
            refusal(vec![asked])
        };
        for (change, words) in [
            (&(|db: &mut v1::Companion| db.ports = vec![65_536]) as &dyn Fn(&mut v1::Companion), "a port is"),
            (&|db: &mut v1::Companion| db.ports = vec![0], "a port is"),
            (
                &|db: &mut v1::Companion| db.ready = Some(v1::Readiness::default()),
                "needs a port or a command",
            ),
            (&|db: &mut v1::Companion| db.name = "Db".to_owned(), "a name must be"),
            (&|db: &mut v1::Companion| db.env = db.secret_env.clone(), "in env and in secret_env"),
            (
                &|db: &mut v1::Companion| {
                    db.secret_env = [("A B".to_owned(), String::new())].into_iter().collect();
                },
                "db: ",
            ),
        ] {
            let refused = with(change);
            assert_eq!(refused.reason, Reason::InvalidArgument, "{}", refused.message);
            assert!(refused.message.contains(words), "{}", refused.message);
        }
        assert_eq!(with(&|db| db.image = "other:1".to_owned()).reason, Reason::ImageNotAllowed);
        assert!(refusal(vec![db(); 17]).message.contains("more than 16"));
    }

    #[test]
    fn rules_of_a_request_are_no_wider_than_those_of_the_profile_for_the_image() {
        let to = |host: &str| {
            format!(r#"{{"rules": [{{"host": "{host}", "ports": [443], "decision": "allow"}}]}}"#)
        };
        let parsed = |text: &str| egress_rules::Rules::from_json(text).unwrap();
        let of_image = parsed(&to("*.example.org"));
        let rules = CompanionRules { egress: [("db:*".to_owned(), of_image.clone())].into(), ..rules() };
        let rules_of = |egress_json: &str| {
            let asked = v1::Companion { egress_json: egress_json.to_owned(), ..db() };
            requested(vec![asked], &rules, []).map(|groups| groups[0][0].rules.clone())
        };
        let whole = Narrowed::new(of_image);
        assert_eq!(rules_of("").unwrap(), whole);
        let narrower = to("files.example.org");
        assert_eq!(rules_of(&narrower).unwrap(), whole.clone().under(parsed(&narrower)));
        assert!(rules_of("{}").unwrap().is_nothing());
        let wider = to("files.example.net");
        for bad in [wider.as_str(), "{", r#"{"only": 7}"#] {
            let refused = rules_of(bad).unwrap_err();
            assert_eq!(refused.reason, Reason::InvalidArgument);
            assert!(refused.message.contains("db: egress"), "{}", refused.message);
        }
    }

    #[test]
    fn no_message_has_a_secret() {
        let mut asked = db();
        asked.env = asked.secret_env.clone();
        assert!(!refusal(vec![asked]).message.contains("hunter2"));
    }
}
